"""What an API server did to an object without showing it in its answer, as far as that follows.

An eviction, a binding and a scaling are answered with something else than the object that they
change. Pure; knows what the server does, nothing of logs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from libs.kube.times import to_second

Tree = Mapping[str, Any]

_FINISHED = frozenset({"Succeeded", "Failed"})
_DEFAULT_GRACE = 30
_MARKED = ("metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the object is now, or None where it is gone; `guessed` are the paths to be taken so
    until the object is seen again.
    """

    after: Tree | None
    guessed: Sequence[str] = ()


def evicted(pod: Tree, *, at: float, options: Tree) -> Outcome:
    """Marked as disrupted, and deleted."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastTransitionTime": to_second(at),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    outcome = deleted(_with_condition(pod, condition), at=at, options=options, is_pod=True)
    return Outcome(outcome.after, (*outcome.guessed, "status.conditions[type=DisruptionTarget]"))


def deleted(whole: Tree, *, at: float, options: Tree, is_pod: bool) -> Outcome:
    """Gone at once, unless a kubelet has to end it first or a finalizer holds it."""
    metadata = tree(whole, "metadata")
    if metadata.get("deletionTimestamp"):
        return Outcome(whole)
    grace = _grace(whole, options) if is_pod else 0
    if not grace and not _held(whole):
        return Outcome(None)
    marks = {"deletionTimestamp": to_second(at + grace), "deletionGracePeriodSeconds": grace}
    return Outcome({**whole, "metadata": {**metadata, **marks}}, _MARKED)


def bound(pod: Tree, *, at: float, node: str) -> Outcome:
    """Placed on a node."""
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": to_second(at)}
    placed = {**pod, "spec": {**tree(pod, "spec"), "nodeName": node}}
    return Outcome(
        _with_condition(placed, condition),
        ("spec.nodeName", "status.conditions[type=PodScheduled]"),
    )


def scaled(whole: Tree, *, replicas: Any) -> Outcome:
    """Of another size."""
    after = {**whole, "spec": {**tree(whole, "spec"), "replicas": replicas}}
    return Outcome(after, ("spec.replicas",))


def leaves(whole: Tree) -> bool:
    """Whether an object that the server answered with is gone by now: nothing holds it."""
    metadata = tree(whole, "metadata")
    return (
        bool(metadata.get("deletionTimestamp"))
        and not metadata.get("deletionGracePeriodSeconds")
        and not _held(whole)
    )


def tree(whole: Tree, key: str) -> Tree:
    """A part of it, empty where there is none."""
    return cast(Tree, whole.get(key) or {})


def _held(whole: Tree) -> bool:
    return bool(tree(whole, "metadata").get("finalizers") or tree(whole, "spec").get("finalizers"))


def _grace(pod: Tree, options: Tree) -> int:
    spec = tree(pod, "spec")
    if not spec.get("nodeName") or tree(pod, "status").get("phase") in _FINISHED:
        return 0
    asked = options.get("gracePeriodSeconds")
    return int(
        spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE) if asked is None else asked
    )


def _with_condition(whole: Tree, condition: Tree) -> Tree:
    status = tree(whole, "status")
    known = cast(list[Tree], status.get("conditions") or [])
    others = [one for one in known if one["type"] != condition["type"]]
    return {**whole, "status": {**status, "conditions": [*others, condition]}}
