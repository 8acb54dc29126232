"""The disruption controller: the status of each PodDisruptionBudget.

A percentage counts the pods that the controllers want, not those that exist: with a pod whose
controller has no scale, such a budget cannot be computed and allows nothing.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from libs.kube.client import Kube
from libs.kube.views import OwnerReference, parse_time, set_condition
from libs.runtime.clock import Clock
from libs.testing.apiserver.objects.selectors import from_object
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.daemonset_plan import resolve_percentage
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.patches import merge_status
from libs.testing.cluster.views import BUDGETS, Budget, BudgetStatus, Pod, ReplicaSet

DISRUPTED_FOR = 120.0
"""Seconds for which a granted eviction counts although the pod has not been seen to go."""


_RESOURCES = {"DaemonSet": "daemonsets.apps", "Job": "jobs.batch"}

Scale = Callable[[OwnerReference], int | None]
"""The number of pods that a controller wants; None where it has no scale."""


class UncountableBudget(msgspec.Struct, frozen=True):
    reason: str


def budget_status(budget: Budget, pods: Sequence[Pod], scale: Scale, *, now: float) -> BudgetStatus:
    active = [pod for pod in pods if not pod.over]
    required = _required(budget, active, scale)
    generation = budget.metadata.generation
    if isinstance(required, UncountableBudget):
        conditions = set_condition(
            budget.status.conditions,
            type="DisruptionAllowed",
            status="False",
            reason="SyncFailed",
            message=required.reason,
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


def _required(
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
    counts: dict[str, int] = {}
    for pod in pods:
        owner = pod.metadata.owner
        if owner is None or owner.uid in counts:
            continue
        count = scale(owner)
        if count is None:
            resource = _RESOURCES.get(owner.kind, owner.kind)
            return UncountableBudget(f"{resource} does not implement the scale subresource")
        counts[owner.uid] = count
    return sum(counts.values())


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
            (self._informers.replica_sets, self._replica_set_changed),
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

    def _replica_set_changed(self, before: ReplicaSet | None, after: ReplicaSet | None) -> None:
        if before is not None and after is not None and before.spec == after.spec:
            return
        changed = after or before
        for budget in self._informers.budgets:
            if changed is not None and budget.metadata.namespace == changed.metadata.namespace:
                self._enqueue(budget)

    async def _reconcile(self, key: str) -> float | None:
        budget = self._informers.budgets.get(key)
        if budget is None or budget.metadata.deletion_timestamp:
            return None
        now = self._clock.now()
        namespace = budget.metadata.namespace
        candidates = self._informers.pods.by_index("namespace", namespace)
        pods = [pod for pod in candidates if _selects(budget, pod)]

        def scale(owner: OwnerReference) -> int | None:
            found = self._informers.replica_sets.get(f"{namespace}/{owner.name}")
            if found is None or found.metadata.uid != owner.uid:
                return None
            return found.spec.replicas

        status = budget_status(budget, pods, scale, now=now)
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
