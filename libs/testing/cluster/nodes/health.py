"""Conditions and taints of nodes whose kubelet is silent or unwell. Pure."""

from typing import Any

from libs.kube.views import Taint, format_time
from libs.testing.cluster.pod_fit import (
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
"""Conditions that only a kubelet can judge."""

_PRESSURES = {
    "MemoryPressure": MEMORY_PRESSURE,
    "DiskPressure": DISK_PRESSURE,
    "PIDPressure": PID_PRESSURE,
    "NetworkUnavailable": NETWORK_UNAVAILABLE,
}
_OWN_KEYS = frozenset({NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURES.values()})


def heartbeat(node: Node, lease: Lease | None) -> tuple[str, str]:
    """Return a value that changes with each heartbeat."""
    ready = node.condition("Ready")
    renewed = lease.spec.renew_time if lease is not None else None
    beat = ready.last_heartbeat_time if ready is not None else None
    return (renewed or "", beat or "")


def unknown_conditions(node: Node, *, now: float) -> list[dict[str, Any]]:
    """Return the conditions to write for a silent node; none where they are written already."""
    conditions: list[dict[str, Any]] = []
    for kind in KUBELET_CONDITIONS:
        before = node.condition(kind)
        if before is not None and before.status == "Unknown":
            continue
        never = before is None
        conditions.append(
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
    return conditions


def wanted_taints(node: Node, *, now: float) -> list[dict[str, Any]] | None:
    """Return all taints the node should have, including those of others; None if it has them."""
    wanted = _own_taints(node)
    kept = [each for each in node.spec.taints if _identity(each) in wanted or not _is_own(each)]
    present = {_identity(each) for each in kept}
    added = [each for each in wanted if each not in present]
    if not added and len(kept) == len(node.spec.taints):
        return None
    return [
        *map(_as_json, kept),
        *({"key": key, "effect": effect, "timeAdded": format_time(now)} for key, effect in added),
    ]


def not_ready_condition(*, now: float) -> dict[str, Any]:
    """Return the condition to write for a pod of a silent node."""
    return {"type": "Ready", "status": "False", "lastTransitionTime": format_time(now)}


def _own_taints(node: Node) -> list[tuple[str, str]]:
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


def _identity(taint: Taint) -> tuple[str, str]:
    return (taint.key, taint.effect)


def _is_own(taint: Taint) -> bool:
    return taint.key in _OWN_KEYS


def _as_json(taint: Taint) -> dict[str, Any]:
    plain = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    return {key: value for key, value in (plain | {"timeAdded": taint.time_added}).items() if value}
