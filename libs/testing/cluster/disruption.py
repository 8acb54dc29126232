"""The disruption controller: keeps the status of PodDisruptionBudgets (`budgets` computes it)."""

import msgspec

from libs.kube.client import Kube
from libs.kube.views import OwnerReference
from libs.runtime.clock import Clock
from libs.testing.apiserver.objects.selectors import from_object
from libs.testing.cluster.budgets import budget_status, recheck_after
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.patches import merge_status
from libs.testing.cluster.views import BUDGETS, Budget, Pod, ReplicaSet

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
