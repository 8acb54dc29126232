"""What is said of a node that its kubelet no longer speaks for, and which taints it has. Pure."""

from typing import Any

from libs.kube.times import format_time
from libs.kube.views import Taint
from libs.testing.cluster.taints import (
    DISK_PRESSURE,
    MEMORY_PRESSURE,
    NETWORK_UNAVAILABLE,
    NO_EXECUTE,
    NO_SCHEDULE,
    NOT_READY,
    PID_PRESSURE,
    UNREACHABLE,
    UNSCHEDULABLE,
)
from libs.testing.cluster.views import Lease, Node

KUBELET_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
"""The conditions that only a kubelet can know."""

_PRESSURES = {
    "MemoryPressure": MEMORY_PRESSURE,
    "DiskPressure": DISK_PRESSURE,
    "PIDPressure": PID_PRESSURE,
    "NetworkUnavailable": NETWORK_UNAVAILABLE,
}
_OURS = frozenset({NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURES.values()})


def heartbeat(node: Node, lease: Lease | None) -> tuple[str, str]:
    """Changes with each heartbeat; its value means nothing."""
    ready = node.condition("Ready")
    renewed = lease.spec.renew_time if lease is not None else None
    beat = ready.last_heartbeat_time if ready is not None else None
    return (renewed or "", beat or "")


def unknown_conditions(node: Node, *, now: float) -> list[dict[str, Any]]:
    """The conditions to write for a node that is silent; none if they are there already."""
    written: list[dict[str, Any]] = []
    for kind in KUBELET_CONDITIONS:
        before = node.condition(kind)
        if before is not None and before.status == "Unknown":
            continue
        never = before is None
        written.append(
            {
                "type": kind,
                "status": "Unknown",
                "reason": "NodeStatusNeverUpdated" if never else "NodeStatusUnknown",
                "message": "Kubelet never posted node status."
                if never
                else "Kubelet stopped posting node status.",
                "lastHeartbeatTime": before.last_heartbeat_time
                if before is not None
                else node.metadata.creation_timestamp,
                "lastTransitionTime": format_time(now),
            }
        )
    return written


def wanted_taints(node: Node, *, now: float) -> list[dict[str, Any]] | None:
    """All taints that the node should have, those of others included; None if it has them."""
    wanted = _wanted(node)
    kept = [each for each in node.spec.taints if _place(each) in wanted or not _ours(each)]
    there = {_place(each) for each in kept}
    added = [each for each in wanted if each not in there]
    if not added and len(kept) == len(node.spec.taints):
        return None
    return [
        *map(_plain, kept),
        *({"key": key, "effect": effect, "timeAdded": format_time(now)} for key, effect in added),
    ]


def not_ready_condition(*, now: float) -> dict[str, Any]:
    """The condition to write for a pod whose kubelet cannot say any more how it is."""
    return {"type": "Ready", "status": "False", "lastTransitionTime": format_time(now)}


def _wanted(node: Node) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    ready = node.condition("Ready")
    if ready is not None and ready.status != "True":
        key = NOT_READY if ready.status == "False" else UNREACHABLE
        found += [(key, NO_SCHEDULE), (key, NO_EXECUTE)]
    if node.spec.unschedulable:
        found.append((UNSCHEDULABLE, NO_SCHEDULE))
    for kind, key in _PRESSURES.items():
        condition = node.condition(kind)
        if condition is not None and condition.status == "True":
            found.append((key, NO_SCHEDULE))
    return found


def _place(taint: Taint) -> tuple[str, str]:
    return (taint.key, taint.effect)


def _ours(taint: Taint) -> bool:
    return taint.key in _OURS


def _plain(taint: Taint) -> dict[str, Any]:
    plain = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    return {key: value for key, value in (plain | {"timeAdded": taint.time_added}).items() if value}
