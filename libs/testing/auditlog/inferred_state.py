"""What an API server did to an object without showing it in its answer, as far as that follows.

An eviction, a binding and a scaling are answered with something else than the object that they
change. Pure; knows what the server does, nothing of logs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from libs.kube.times import format_time

Tree = Mapping[str, Any]

_FINISHED = frozenset({"Succeeded", "Failed"})
_DEFAULT_GRACE = 30
_MARKED = ("metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds")


@dataclass(frozen=True, slots=True)
class InferredState:
    """What the object is now, or None where it is gone; `guessed` are the paths to be taken so
    until the object is seen again.
    """

    after: Tree | None
    guessed: Sequence[str] = ()


def after_eviction(pod: Tree, *, at: float, options: Tree) -> InferredState:
    """Marked as disrupted, and deleted."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastTransitionTime": format_time(at),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    outcome = after_deletion(_with_condition(pod, condition), at=at, options=options, is_pod=True)
    return InferredState(
        outcome.after, (*outcome.guessed, "status.conditions[type=DisruptionTarget]")
    )


def after_deletion(whole: Tree, *, at: float, options: Tree, is_pod: bool) -> InferredState:
    """Gone at once, unless a kubelet has to end it first or a finalizer holds it."""
    metadata = subtree(whole, "metadata")
    if metadata.get("deletionTimestamp"):
        return InferredState(whole)
    grace = _grace(whole, options) if is_pod else 0
    if not grace and not _held(whole):
        return InferredState(None)
    marks = {"deletionTimestamp": format_time(at + grace), "deletionGracePeriodSeconds": grace}
    return InferredState({**whole, "metadata": {**metadata, **marks}}, _MARKED)


def after_binding(pod: Tree, *, at: float, node: str) -> InferredState:
    """Placed on a node."""
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": format_time(at)}
    placed = {**pod, "spec": {**subtree(pod, "spec"), "nodeName": node}}
    return InferredState(
        _with_condition(placed, condition),
        ("spec.nodeName", "status.conditions[type=PodScheduled]"),
    )


def after_scaling(whole: Tree, *, replicas: Any) -> InferredState:
    """Of another size."""
    after = {**whole, "spec": {**subtree(whole, "spec"), "replicas": replicas}}
    return InferredState(after, ("spec.replicas",))


def is_removed(whole: Tree) -> bool:
    """Whether an object that the server answered with is gone by now: nothing holds it."""
    metadata = subtree(whole, "metadata")
    return (
        bool(metadata.get("deletionTimestamp"))
        and not metadata.get("deletionGracePeriodSeconds")
        and not _held(whole)
    )


def subtree(whole: Tree, key: str) -> Tree:
    """A part of it, empty where there is none."""
    return cast(Tree, whole.get(key) or {})


def _held(whole: Tree) -> bool:
    return bool(
        subtree(whole, "metadata").get("finalizers") or subtree(whole, "spec").get("finalizers")
    )


def _grace(pod: Tree, options: Tree) -> int:
    spec = subtree(pod, "spec")
    if not spec.get("nodeName") or subtree(pod, "status").get("phase") in _FINISHED:
        return 0
    asked = options.get("gracePeriodSeconds")
    return int(
        spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE) if asked is None else asked
    )


def _with_condition(whole: Tree, condition: Tree) -> Tree:
    status = subtree(whole, "status")
    known = cast(list[Tree], status.get("conditions") or [])
    others = [one for one in known if one["type"] != condition["type"]]
    return {**whole, "status": {**status, "conditions": [*others, condition]}}
