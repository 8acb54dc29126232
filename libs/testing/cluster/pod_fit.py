"""Where a pod may go: what its node must be, bear and have left. Pure; any scheduler's business."""

from collections.abc import Callable, Iterable

import msgspec

from libs.kube.views import Taint
from libs.testing.apiserver.objects.selectors import node_affinity
from libs.testing.cluster.taints import NO_EXECUTE, NO_SCHEDULE, UNSCHEDULABLE, untolerated
from libs.testing.cluster.views import Node, Pod, PodSpec

CORDON = Taint(key=UNSCHEDULABLE, effect=NO_SCHEDULE)
"""What a cordon counts as, also before its taint is there."""


class Unschedulable(msgspec.Struct, frozen=True):
    """Why a pod can go nowhere, in a scheduler's words."""

    message: str


def selects(spec: PodSpec, node: Node) -> bool:
    """Whether a pod's node selector and its required affinity hold for the node."""
    if not spec.node_selector and not spec.affinity:
        return True
    return node_affinity(
        {"nodeSelector": spec.node_selector, "affinity": spec.affinity},
        {"metadata": {"name": node.metadata.name, "labels": node.metadata.labels}},
    )


def devices(spec: PodSpec) -> dict[str, int]:
    """What it needs of the resources that are counted in pieces and belong to one pod at a time."""
    needs: dict[str, int] = {}
    for container in spec.containers:
        asked = {**container.resources.limits, **container.resources.requests}
        for name, amount in asked.items():
            if "/" in name:
                needs[name] = needs.get(name, 0) + int(amount)
    return needs


def devices_left(node: Node, pods: Iterable[Pod]) -> dict[str, int]:
    """What of them none of these pods has, which are on the node."""
    free = {name: int(count) for name, count in node.status.allocatable.items() if "/" in name}
    for pod in pods:
        for name, count in devices(pod.spec).items():
            free[name] = free.get(name, 0) - count
    return free


def find_node(
    pod: Pod, candidates: Iterable[Node], pods_on: Callable[[str], Iterable[Pod]], *, total: int
) -> str | Unschedulable:
    """The candidate with the most devices left that the pod may go to; of equals that with the
    fewest pods, and then by name.
    """
    needs = devices(pod.spec)
    why: dict[str, int] = {}
    best: tuple[int, int, str] | None = None
    for node in candidates:
        name = node.metadata.name
        refusal = _refusal(pod.spec, node)
        there = [each for each in pods_on(name) if not each.over]
        free = devices_left(node, there)
        lacking = next((key for key, count in needs.items() if free.get(key, 0) < count), "")
        refusal = refusal or (f"Insufficient {lacking}" if lacking else "")
        if refusal:
            why[refusal] = why.get(refusal, 0) + 1
        else:
            rank = (-sum(free.get(key, 0) for key in needs), len(there), name)
            best = rank if best is None else min(best, rank)
    if best is not None:
        return best[2]
    others = total - sum(why.values())
    if others:
        why["node(s) that it is not meant for"] = others
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(why.items()))
    return Unschedulable(f"0/{total} nodes are available: {reasons or 'there are none'}.")


def _refusal(spec: PodSpec, node: Node) -> str:
    if not selects(spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    if node.spec.unschedulable and untolerated([CORDON], spec.tolerations, effects=[NO_SCHEDULE]):
        return "node(s) were unschedulable"
    taint = untolerated(node.spec.taints, spec.tolerations, effects=(NO_SCHEDULE, NO_EXECUTE))
    if taint is not None:
        return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    return ""
