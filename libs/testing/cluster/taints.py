"""Which taints keep a pod off a node, and for how long it bears the others. Pure."""

from collections.abc import Iterable, Sequence

from libs.kube.views import Taint
from libs.testing.cluster.views import Toleration

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
DISK_PRESSURE = "node.kubernetes.io/disk-pressure"
PID_PRESSURE = "node.kubernetes.io/pid-pressure"
NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether this one bears that one, for however long."""
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
    """The first of these effects that no toleration bears."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None


def tolerated_seconds(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> float | None:
    """Seconds that a pod may stay under what does not let it run; None: for ever."""
    shortest: float | None = None
    for taint in taints:
        if taint.effect != NO_EXECUTE:
            continue
        bearing = [each for each in tolerations if tolerates(each, taint)]
        if not bearing:
            return 0.0
        limits = [each.toleration_seconds for each in bearing]
        for limit in limits:
            if limit is not None and (shortest is None or limit < shortest):
                shortest = max(0.0, float(limit))
    return shortest
