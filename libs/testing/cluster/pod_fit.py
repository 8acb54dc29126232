"""Where a pod may run: node selector, taints, cordon and devices. Pure."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from libs.kube.views import Taint
from libs.testing.apiserver.objects.selectors import node_affinity
from libs.testing.cluster.views import Node, Pod, PodSpec, Toleration

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
DISK_PRESSURE = "node.kubernetes.io/disk-pressure"
PID_PRESSURE = "node.kubernetes.io/pid-pressure"
NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"

CORDON = Taint(key=UNSCHEDULABLE, effect=NO_SCHEDULE)
"""The taint that a cordon stands for, counted even before it is written."""


class Unschedulable(msgspec.Struct, frozen=True):
    """Why a pod fits on no node, as a scheduler words it."""

    message: str


def selects(spec: PodSpec, node: Node) -> bool:
    """Whether a pod's node selector and required affinity match the node."""
    if not spec.node_selector and not spec.affinity:
        return True
    return node_affinity(
        {"nodeSelector": spec.node_selector, "affinity": spec.affinity},
        {"metadata": {"name": node.metadata.name, "labels": node.metadata.labels}},
    )


def devices(spec: PodSpec) -> dict[str, int]:
    """Return how many devices of each extended resource a pod needs."""
    needs: dict[str, int] = {}
    for container in spec.containers:
        resources = {**container.resources.limits, **container.resources.requests}
        for name, amount in resources.items():
            if "/" in name:
                needs[name] = needs.get(name, 0) + int(amount)
    return needs


def devices_left(node: Node, pods: Iterable[Pod]) -> dict[str, int]:
    """Return the allocatable devices of a node that none of these pods on it uses."""
    free = {name: int(count) for name, count in node.status.allocatable.items() if "/" in name}
    for pod in pods:
        for name, count in devices(pod.spec).items():
            free[name] = free.get(name, 0) - count
    return free


def find_node(
    pod: Pod, candidates: Iterable[Node], pods_on: Callable[[str], Iterable[Pod]], *, total: int
) -> str | Unschedulable:
    """Choose the candidate with the most devices left; then with the fewest pods; then by name."""
    needs = devices(pod.spec)
    refusals: dict[str, int] = {}
    lowest: tuple[int, int, str] | None = None
    for node in candidates:
        name = node.metadata.name
        refusal = _refusal(pod.spec, node)
        present = [each for each in pods_on(name) if not each.over]
        free = devices_left(node, present)
        missing = next((key for key, count in needs.items() if free.get(key, 0) < count), "")
        refusal = refusal or (f"Insufficient {missing}" if missing else "")
        if refusal:
            refusals[refusal] = refusals.get(refusal, 0) + 1
        else:
            rank = (-sum(free.get(key, 0) for key in needs), len(present), name)
            lowest = rank if lowest is None else min(lowest, rank)
    if lowest is not None:
        return lowest[2]
    others = total - sum(refusals.values())
    if others:
        refusals["node(s) that it is not meant for"] = others
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(refusals.items()))
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


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.key not in ("", taint.key):
        return False
    return toleration.operator == "Exists" or (
        toleration.key != "" and toleration.value == taint.value
    )


def untolerated(
    taints: Iterable[Taint], tolerations: Sequence[Toleration], *, effects: Sequence[str]
) -> Taint | None:
    """Return the first taint of these effects that no toleration matches."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None


def tolerated_seconds(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> float | None:
    """Return how long a pod tolerates the NoExecute taints; None: forever."""
    shortest: float | None = None
    for taint in taints:
        if taint.effect != NO_EXECUTE:
            continue
        matching = [each for each in tolerations if tolerates(each, taint)]
        if not matching:
            return 0.0
        limits = [each.toleration_seconds for each in matching]
        for limit in limits:
            if limit is not None and (shortest is None or limit < shortest):
                shortest = max(0.0, float(limit))
    return shortest
