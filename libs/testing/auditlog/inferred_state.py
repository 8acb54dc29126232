"""The state of an object after a request whose response does not show it.

Evictions, bindings, scalings and most deletions are answered with other objects than the one that
they change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from libs.kube.views import format_time

Tree = Mapping[str, Any]

_FINISHED = frozenset({"Succeeded", "Failed"})
_DEFAULT_GRACE = 30
_MARKED = ("metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds")


@dataclass(frozen=True, slots=True)
class InferredState:
    """The object after a request; None where it was deleted.

    `guessed` holds the paths whose values are inferred, until a response shows the object again.
    """

    after: Tree | None
    guessed: Sequence[str] = ()


def after_eviction(pod: Tree, *, at: float, options: Tree) -> InferredState:
    """Return the pod marked as disrupted, and deleted."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastTransitionTime": format_time(at),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    deleted = after_deletion(_with_condition(pod, condition), at=at, options=options, is_pod=True)
    return InferredState(
        deleted.after, (*deleted.guessed, "status.conditions[type=DisruptionTarget]")
    )


def after_deletion(manifest: Tree, *, at: float, options: Tree, is_pod: bool) -> InferredState:
    """Return no object, or a marked one where a kubelet or a finalizer has to finish first."""
    metadata = subtree(manifest, "metadata")
    if metadata.get("deletionTimestamp"):
        return InferredState(manifest)
    grace = _grace(manifest, options) if is_pod else 0
    if not grace and not _has_finalizers(manifest):
        return InferredState(None)
    marks = {"deletionTimestamp": format_time(at + grace), "deletionGracePeriodSeconds": grace}
    return InferredState({**manifest, "metadata": {**metadata, **marks}}, _MARKED)


def after_binding(pod: Tree, *, at: float, node: str) -> InferredState:
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": format_time(at)}
    bound = {**pod, "spec": {**subtree(pod, "spec"), "nodeName": node}}
    return InferredState(
        _with_condition(bound, condition),
        ("spec.nodeName", "status.conditions[type=PodScheduled]"),
    )


def after_scaling(manifest: Tree, *, replicas: Any) -> InferredState:
    after = {**manifest, "spec": {**subtree(manifest, "spec"), "replicas": replicas}}
    return InferredState(after, ("spec.replicas",))


def is_removed(manifest: Tree) -> bool:
    """Report whether an object in a response is already deleted, because nothing holds it."""
    metadata = subtree(manifest, "metadata")
    return (
        bool(metadata.get("deletionTimestamp"))
        and not metadata.get("deletionGracePeriodSeconds")
        and not _has_finalizers(manifest)
    )


def subtree(manifest: Tree, key: str) -> Tree:
    return cast(Tree, manifest.get(key) or {})


def _has_finalizers(manifest: Tree) -> bool:
    return bool(
        subtree(manifest, "metadata").get("finalizers")
        or subtree(manifest, "spec").get("finalizers")
    )


def _grace(pod: Tree, options: Tree) -> int:
    spec = subtree(pod, "spec")
    if not spec.get("nodeName") or subtree(pod, "status").get("phase") in _FINISHED:
        return 0
    requested = options.get("gracePeriodSeconds")
    return int(
        spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
        if requested is None
        else requested
    )


def _with_condition(manifest: Tree, condition: Tree) -> Tree:
    status = subtree(manifest, "status")
    conditions = cast(list[Tree], status.get("conditions") or [])
    others = [known for known in conditions if known["type"] != condition["type"]]
    return {**manifest, "status": {**status, "conditions": [*others, condition]}}
