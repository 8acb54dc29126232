"""Our writes as objects of the API: the whole of what we own of a Node, and a Rollout. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from libs.contracts import node as keys
from libs.contracts.message import encode
from libs.contracts.rollout import FINALIZER
from libs.rollout.decision import NodeApplyConfiguration, WriteRollout
from services.scheduler.resources import ROLLOUTS, Rollout

_LABELS: Final = frozenset(
    {keys.STATE_LABEL, keys.DRIVER_LABEL, keys.SKIP_LABEL, keys.KEEP_CORDONED_LABEL}
)


def node_object(name: str, applied: NodeApplyConfiguration) -> dict[str, Any]:
    """What is not in it, we give up; what is cleared is forced to be empty, and given up next."""
    labels: dict[str, str] = {key: "" for key in applied.cleared if key in _LABELS}
    annotations: dict[str, str] = {key: "" for key in applied.cleared if key not in _LABELS}
    if applied.state:
        labels[keys.STATE_LABEL] = applied.state
    if applied.driver_label:
        labels[keys.DRIVER_LABEL] = applied.driver_label
    if applied.lease is not None:
        annotations[keys.LEASE_ANNOTATION] = encode(applied.lease).decode()
    if applied.record is not None:
        annotations[keys.RECORD_ANNOTATION] = encode(applied.record).decode()
    if applied.initially_cordoned:
        annotations[keys.INITIALLY_CORDONED_ANNOTATION] = "true"
    metadata: dict[str, Any] = {"name": name}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    made: dict[str, Any] = {"metadata": metadata}
    if applied.unschedulable is not None:
        made["spec"] = {"unschedulable": applied.unschedulable}
    return made


def rollout_object(write: WriteRollout) -> dict[str, Any]:
    """One that is made: its status follows, for a server takes none with a new object."""
    metadata: dict[str, Any] = {"name": write.pool}
    if write.has_finalizer:
        metadata["finalizers"] = [FINALIZER]
    made = {**_typed(), "metadata": metadata}
    return made if write.brake is None else {**made, "spec": {"brake": write.brake.value}}


def rollout_status(there: Rollout, write: WriteRollout) -> dict[str, Any]:
    """The PUT of a status: of this very object, at this very revision."""
    return {
        **_typed(),
        "metadata": _fenced(
            there.metadata.name, there.metadata.uid, there.metadata.resource_version
        ),
        "spec": msgspec.to_builtins(there.spec),
        "status": msgspec.to_builtins(write.status),
    }


def finalizer_patch(there: Rollout, *, finalized: bool) -> Mapping[str, Any] | None:
    """The change that puts ours on or takes it off; None: it is as it should be."""
    found = [one for one in there.metadata.finalizers if one != FINALIZER]
    wanted = [*found, FINALIZER] if finalized else found
    if set(wanted) == set(there.metadata.finalizers):
        return None
    return {"metadata": {"uid": there.metadata.uid, "finalizers": wanted}}


def _typed() -> dict[str, Any]:
    return {"apiVersion": ROLLOUTS.api_version, "kind": ROLLOUTS.kind}


def _fenced(name: str, uid: str, revision: str) -> dict[str, str]:
    return {"name": name, "uid": uid, "resourceVersion": revision}
