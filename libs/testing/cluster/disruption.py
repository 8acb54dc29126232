"""The disruption controller: the status of each PodDisruptionBudget.

Only budgets with a numeric `minAvailable` are simulated.
"""

from collections.abc import Mapping, Sequence

import msgspec

from libs.kube.client import Kube
from libs.kube.views import parse_time, set_condition
from libs.runtime.clock import Clock
from libs.testing.apiserver.objects.selectors import from_object
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.patches import merge_status
from libs.testing.cluster.views import BUDGETS, Budget, BudgetStatus, Pod

DISRUPTED_FOR = 120.0
"""Seconds for which a granted eviction counts while the cache still shows the pod."""


def budget_status(budget: Budget, pods: Sequence[Pod], *, now: float) -> BudgetStatus:
    active = [pod for pod in pods if not pod.over]
    expected, desired = len(active), budget.spec.min_available
    generation = budget.metadata.generation
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


def _still_disrupted(
    before: Mapping[str, str], pods: Sequence[Pod], *, now: float
) -> dict[str, str]:
    present = {pod.metadata.name for pod in pods if not pod.deleting}
    return {
        name: time
        for name, time in before.items()
        if name in present and parse_time(time) + DISRUPTED_FOR > now
    }


USER = "system:serviceaccount:kube-system:disruption-controller"

SETTLES = 0.01
"""Seconds from a change to its reconciliation."""


class DisruptionController:
    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._informers = informers
        self._kube = kube
        self._clock = clock
        self._loop = ControllerLoop("disruption", self._reconcile, clock=clock)

    async def run(self) -> None:
        await self._loop.run(
            (self._informers.budgets, self._budget_changed),
            (self._informers.pods, self._pod_changed),
        )

    def _enqueue(self, budget: Budget) -> None:
        self._loop.queue.add_after(budget.metadata.key, SETTLES)

    def _budget_changed(self, _before: Budget | None, after: Budget | None) -> None:
        if after is not None:
            self._enqueue(after)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        for budget in self._informers.budgets:
            if any(pod is not None and _selects(budget, pod) for pod in (before, after)):
                self._enqueue(budget)

    async def _reconcile(self, key: str) -> float | None:
        budget = self._informers.budgets.get(key)
        if budget is None or budget.metadata.deletion_timestamp:
            return None
        now = self._clock.now()
        namespace = budget.metadata.namespace
        candidates = self._informers.pods.by_index("namespace", namespace)
        pods = [pod for pod in candidates if _selects(budget, pod)]

        status = budget_status(budget, pods, now=now)
        if status != budget.status:
            change = msgspec.to_builtins(status)
            # A merge patch removes a key only when it is set to null.
            removed = budget.status.disrupted_pods.keys() - status.disrupted_pods.keys()
            change["disruptedPods"] |= dict.fromkeys(sorted(removed))
            cache = self._informers.budgets
            await merge_status(self._kube, BUDGETS, budget, change, cache=cache)
        return recheck_after(status, now=now)


def _selects(budget: Budget, pod: Pod) -> bool:
    if budget.metadata.namespace != pod.metadata.namespace:
        return False
    return from_object(budget.spec.selector)(pod.metadata.labels)
