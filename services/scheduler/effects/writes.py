"""The writes of a leader to the API server. Each is counted, and updates the informers' caches."""

from collections.abc import Awaitable
from typing import Any, Final, TypeVar

import msgspec

from libs.contracts import node as keys
from libs.contracts.message import encode
from libs.contracts.rollout import FINALIZER
from libs.kube.client import EvictionResult, Kube, Preconditions
from libs.kube.errors import Conflict, KubeError, NotFound, UnknownKind
from libs.rollout.decision import (
    NodeApplyConfiguration,
    NodeTaint,
    PodRef,
    WriteNode,
    WriteRollout,
)
from services.scheduler import resources
from services.scheduler.inputs import Informers
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.resources import ROLLOUTS, Node, Rollout

T = TypeVar("T")

TIMEOUT: Final = 3.0
"""Seconds for each request."""

_LABELS: Final = frozenset(
    {
        keys.STATE_LABEL,
        keys.DRIVER_LABEL,
        keys.SKIP_LABEL,
        keys.KEEP_CORDONED_LABEL,
        keys.MIG_STATE_LABEL,
    }
)


class Writes:
    """`kube` is fenced: it refuses writes outside one term."""

    def __init__(self, kube: Kube, *, informers: Informers, metrics: SchedulerMetrics) -> None:
        self._kube = kube
        self._nodes = informers.nodes.cache
        self._rollouts = informers.rollouts.cache
        self._driver_pods = informers.driver_pods.cache
        self._metrics = metrics

    # Nodes.

    async def apply_node(self, name: str, write: WriteNode) -> Node:
        """Apply all fields that the scheduler owns, if the Node is at the revision decided on."""
        request = self._kube.apply(
            resources.NODES,
            _node_object(name, write.applied),
            force=True,
            preconditions=Preconditions(uid=write.uid, resource_version=write.revision),
            within=TIMEOUT,
        )
        node = await self._counted("node", request)
        self._nodes.record_write(node)
        return node

    async def refresh_node(self, name: str) -> None:
        """Read the Node into the cache after a failed write."""
        try:
            self._nodes.record_write(await self._kube.get(resources.NODES, name, within=TIMEOUT))
        except KubeError:
            return  # the watch delivers it later

    # Rollouts.

    async def write_rollout(self, write: WriteRollout) -> Rollout:
        """Write the status of a Rollout by compare-and-set; create the Rollout if needed."""
        if not write.uid:
            request = self._kube.create(ROLLOUTS, _rollout_object(write), within=TIMEOUT)
            rollout = await self._counted("rollout", request)
            self._rollouts.record_write(rollout)
            return await self._put_status(rollout, write)
        rollout = self._rollouts.get(write.pool)
        if rollout is None or (write.uid, write.revision) != (
            rollout.metadata.uid,
            rollout.metadata.resource_version,
        ):
            raise Conflict(
                f"write Rollout {write.pool}",
                "it has changed since the decision",
                code=409,
                reason="Conflict",
            )
        if write.has_finalizer:  # before the status, which it protects
            rollout = await self._set_finalizer(rollout, present=True)
        if rollout.status != write.status:
            rollout = await self._put_status(rollout, write)
        if not write.has_finalizer:
            rollout = await self._set_finalizer(rollout, present=False)
        return rollout

    async def refresh_rollout(self, pool: str) -> None:
        """Read the Rollout into the cache after a failed write."""
        try:
            self._rollouts.record_write(await self._kube.get(ROLLOUTS, pool, within=TIMEOUT))
        except KubeError:
            return

    async def _put_status(self, rollout: Rollout, write: WriteRollout) -> Rollout:
        metadata = rollout.metadata
        body = {
            **_typed(),
            "metadata": {
                "name": metadata.name,
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
            },
            "spec": msgspec.to_builtins(rollout.spec),
            "status": msgspec.to_builtins(write.status),
        }
        request = self._kube.replace(ROLLOUTS, body, subresource="status", within=TIMEOUT)
        written = await self._counted("rollout", request)
        self._rollouts.record_write(written)
        return written

    async def _set_finalizer(self, rollout: Rollout, *, present: bool) -> Rollout:
        metadata = rollout.metadata
        others = [name for name in metadata.finalizers if name != FINALIZER]
        finalizers = [*others, FINALIZER] if present else others
        if set(finalizers) == set(metadata.finalizers):
            return rollout
        request = self._kube.merge(
            ROLLOUTS,
            metadata.name,
            {"metadata": {"uid": metadata.uid, "finalizers": finalizers}},
            resource_version=metadata.resource_version,
            within=TIMEOUT,
        )
        written = await self._counted("rollout", request)
        self._rollouts.record_write(written)
        return written

    # Pods.

    async def evict_pod(self, pod: PodRef, *, by_force: bool) -> EvictionResult:
        """Evict a pod; by force: without grace, still by eviction, as deletion is not permitted."""
        request = self._kube.evict(
            pod.name,
            namespace=pod.namespace,
            uid=pod.uid,
            grace=0 if by_force else None,
            within=TIMEOUT,
        )
        return await self._counted("eviction", request)

    async def delete_pod(self, pod: PodRef) -> None:
        """Delete a driver pod, by uid: never its successor of the same name."""
        request = self._kube.delete(
            resources.PODS, pod.name, namespace=pod.namespace, uid=pod.uid, within=TIMEOUT
        )
        try:
            deleted = await self._counted("pod", request)
        except UnknownKind:
            raise
        except (NotFound, Conflict):
            return  # it is gone
        if deleted is not None:
            self._driver_pods.record_write(deleted)

    async def _counted(self, kind: str, request: Awaitable[T]) -> T:
        try:
            answer = await request
        except KubeError as error:
            self._metrics.count_write(kind, "conflict" if isinstance(error, Conflict) else "failed")
            raise
        self._metrics.count_write(kind, "done")
        return answer


def _node_object(name: str, applied: NodeApplyConfiguration) -> dict[str, Any]:
    """Return all fields that the scheduler owns; the server releases those that are missing.

    A field to clear is set to empty first, by force, and is missing from the next apply.
    """
    labels: dict[str, str] = {key: "" for key in applied.cleared if key in _LABELS}
    annotations: dict[str, str] = {key: "" for key in applied.cleared if key not in _LABELS}
    if applied.state:
        labels[keys.STATE_LABEL] = applied.state
    if applied.mig_state:
        labels[keys.MIG_STATE_LABEL] = applied.mig_state
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
    spec: dict[str, Any] = {}
    if applied.unschedulable is not None:
        spec["unschedulable"] = applied.unschedulable
    if applied.taints is not None:
        spec["taints"] = [_taint_object(taint) for taint in applied.taints]
    return {"metadata": metadata, "spec": spec} if spec else {"metadata": metadata}


def _taint_object(taint: NodeTaint) -> dict[str, str]:
    fields = {"value": taint.value, "timeAdded": taint.time_added}
    given = {name: value for name, value in fields.items() if value}
    return {"key": taint.key, "effect": taint.effect, **given}


def _rollout_object(write: WriteRollout) -> dict[str, Any]:
    """Return a new Rollout without status: a server ignores the status of a new object."""
    metadata: dict[str, Any] = {"name": write.pool}
    if write.has_finalizer:
        metadata["finalizers"] = [FINALIZER]
    rollout = {**_typed(), "metadata": metadata}
    return rollout if write.brake is None else {**rollout, "spec": {"brake": write.brake.value}}


def _typed() -> dict[str, Any]:
    return {"apiVersion": ROLLOUTS.api_version, "kind": ROLLOUTS.kind}
