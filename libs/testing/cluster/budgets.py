"""What a PodDisruptionBudget allows now. Pure.

A share is of what the pods' controllers want, not of what happens to be there; so a pod without a
controller that can be asked leaves a budget by share without an answer, and it allows nothing.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from libs.kube.conditions import set_condition
from libs.kube.times import parse_time
from libs.kube.views import OwnerReference
from libs.testing.cluster.daemonsets.rolling_update import resolve_percentage
from libs.testing.cluster.views import Budget, BudgetStatus, Pod

DISRUPTED_FOR = 120.0
"""How long an eviction that was granted counts although nobody has seen the pod go."""

_RESOURCES = {"DaemonSet": "daemonsets.apps", "Job": "jobs.batch"}

Scale = Callable[[OwnerReference], int | None]
"""How many pods a controller wants; None where it cannot be asked."""


class UncountableBudget(msgspec.Struct, frozen=True):
    """Why the budget cannot be counted."""

    why: str


def budget_status(budget: Budget, pods: Sequence[Pod], scale: Scale, *, now: float) -> BudgetStatus:
    """The status as it should be."""
    live = [pod for pod in pods if not pod.over]
    counted = _wanted(budget, live, scale)
    generation = budget.metadata.generation
    if isinstance(counted, UncountableBudget):
        conditions = set_condition(
            budget.status.conditions,
            type="DisruptionAllowed",
            status="False",
            reason="SyncFailed",
            message=counted.why,
            generation=0,
            now=now,
        )
        return msgspec.structs.replace(budget.status, disruptions_allowed=0, conditions=conditions)
    expected, desired = counted
    disrupted = _disrupted(budget.status.disrupted_pods, live, now=now)
    healthy = sum(
        pod.ready and not pod.deleting and pod.metadata.name not in disrupted for pod in live
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
    """Seconds until the next granted eviction counts no more."""
    ends = [parse_time(at) + DISRUPTED_FOR - now for at in status.disrupted_pods.values()]
    return max(0.0, min(ends)) if ends else None


def _wanted(
    budget: Budget, pods: Sequence[Pod], scale: Scale
) -> tuple[int, int] | UncountableBudget:
    """How many pods are expected, and how many of them must be healthy."""
    spec = budget.spec
    if spec.max_unavailable is None and isinstance(spec.min_available, int):
        return len(pods), spec.min_available
    expected = _scale(pods, scale)
    if isinstance(expected, UncountableBudget):
        return expected
    if spec.max_unavailable is not None:
        return expected, max(0, expected - resolve_percentage(spec.max_unavailable, expected))
    return expected, resolve_percentage(spec.min_available or 0, expected)


def _scale(pods: Sequence[Pod], scale: Scale) -> int | UncountableBudget:
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


def _disrupted(known: Mapping[str, str], pods: Sequence[Pod], *, now: float) -> dict[str, str]:
    here = {pod.metadata.name for pod in pods if not pod.deleting}
    return {
        name: at
        for name, at in known.items()
        if name in here and parse_time(at) + DISRUPTED_FOR > now
    }
