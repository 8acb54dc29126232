"""Compute the status of a PodDisruptionBudget. Pure.

A percentage counts the pods that the controllers want, not those that exist: with a pod whose
controller has no scale, such a budget cannot be computed and allows nothing.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from libs.kube.views import OwnerReference, parse_time, set_condition
from libs.testing.cluster.daemonsets.plan import resolve_percentage
from libs.testing.cluster.views import Budget, BudgetStatus, Pod

DISRUPTED_FOR = 120.0
"""Seconds for which a granted eviction counts although the pod has not been seen to go."""

_RESOURCES = {"DaemonSet": "daemonsets.apps", "Job": "jobs.batch"}

Scale = Callable[[OwnerReference], int | None]
"""The number of pods that a controller wants; None where it has no scale."""


class UncountableBudget(msgspec.Struct, frozen=True):
    why: str


def budget_status(budget: Budget, pods: Sequence[Pod], scale: Scale, *, now: float) -> BudgetStatus:
    active = [pod for pod in pods if not pod.over]
    required = _wanted(budget, active, scale)
    generation = budget.metadata.generation
    if isinstance(required, UncountableBudget):
        conditions = set_condition(
            budget.status.conditions,
            type="DisruptionAllowed",
            status="False",
            reason="SyncFailed",
            message=required.why,
            generation=0,
            now=now,
        )
        return msgspec.structs.replace(budget.status, disruptions_allowed=0, conditions=conditions)
    expected, desired = required
    disrupted = _still_disrupted(budget.status.disrupted_pods, active, now=now)
    healthy = sum(
        pod.ready and not pod.deleting and pod.metadata.name not in disrupted for pod in active
    )
    allowed = max(0, healthy - desired) if expected > 0 else 0
    return BudgetStatus(
        observed_generation=generation,
        disruptions_allowed=allowed,
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=expected,
        disrupted_pods=disrupted,
        conditions=set_condition(
            budget.status.conditions,
            type="DisruptionAllowed",
            status="True" if allowed else "False",
            reason="SufficientPods" if allowed else "InsufficientPods",
            message="",
            generation=generation,
            now=now,
        ),
    )


def recheck_after(status: BudgetStatus, *, now: float) -> float | None:
    """Return the seconds until the next granted eviction stops counting."""
    ends = [parse_time(time) + DISRUPTED_FOR - now for time in status.disrupted_pods.values()]
    return max(0.0, min(ends)) if ends else None


def _wanted(
    budget: Budget, pods: Sequence[Pod], scale: Scale
) -> tuple[int, int] | UncountableBudget:
    """Return the expected number of pods, and how many of them must be healthy."""
    spec = budget.spec
    if spec.max_unavailable is None and isinstance(spec.min_available, int):
        return len(pods), spec.min_available
    expected = _expected_pods(pods, scale)
    if isinstance(expected, UncountableBudget):
        return expected
    if spec.max_unavailable is not None:
        return expected, max(0, expected - resolve_percentage(spec.max_unavailable, expected))
    return expected, resolve_percentage(spec.min_available or 0, expected)


def _expected_pods(pods: Sequence[Pod], scale: Scale) -> int | UncountableBudget:
    wants: dict[str, int] = {}
    for pod in pods:
        owner = pod.metadata.owner
        if owner is None or owner.uid in wants:
            continue
        count = scale(owner)
        if count is None:
            resource = _RESOURCES.get(owner.kind, owner.kind)
            return UncountableBudget(f"{resource} does not implement the scale subresource")
        wants[owner.uid] = count
    return sum(wants.values())


def _still_disrupted(
    before: Mapping[str, str], pods: Sequence[Pod], *, now: float
) -> dict[str, str]:
    present = {pod.metadata.name for pod in pods if not pod.deleting}
    return {
        name: time
        for name, time in before.items()
        if name in present and parse_time(time) + DISRUPTED_FOR > now
    }
