"""The disruption controller at work: it keeps the status of PodDisruptionBudgets.

What a status should be is decided in `budgets`; the API server judges evictions by it.
"""

from contextlib import ExitStack
from typing import Any

import msgspec

from libs.kube.client import Kube
from libs.kube.views import OwnerReference
from libs.runtime.clock import Clock
from libs.testing.apiserver.objects.selectors import from_object
from libs.testing.cluster.budgets import budget_status, recheck_after
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.views import BUDGETS, Budget, Pod, ReplicaSet

USER = "system:serviceaccount:kube-system:disruption-controller"

SETTLES = 0.01
"""Seconds between a change and a look at it."""


class DisruptionController:
    """Counts healthy pods against what their budgets want."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._seen = informers
        self._kube = kube
        self._clock = clock
        self._work = ControllerLoop("disruption", self._reconcile, clock=clock)

    async def run(self) -> None:
        """Until it is cancelled."""
        with ExitStack() as stack:
            stack.callback(self._seen.budgets.on_change(self._changed))
            stack.callback(self._seen.pods.on_change(self._pod_changed))
            stack.callback(self._seen.replica_sets.on_change(self._scaled))
            for budget in self._seen.budgets:
                self._look_at(budget)
            await self._work.run()

    def _look_at(self, budget: Budget) -> None:
        self._work.queue.add_after(budget.metadata.key, SETTLES)

    def _changed(self, _before: Budget | None, after: Budget | None) -> None:
        if after is not None:
            self._look_at(after)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        for budget in self._seen.budgets:
            if any(pod is not None and _covers(budget, pod) for pod in (before, after)):
                self._look_at(budget)

    def _scaled(self, before: ReplicaSet | None, after: ReplicaSet | None) -> None:
        if before is not None and after is not None and before.spec == after.spec:
            return
        here = after or before
        for budget in self._seen.budgets:
            if here is not None and budget.metadata.namespace == here.metadata.namespace:
                self._look_at(budget)

    async def _reconcile(self, key: str) -> float | None:
        budget = self._seen.budgets.get(key)
        if budget is None or budget.metadata.deletion_timestamp:
            return None
        now = self._clock.now()
        namespace = budget.metadata.namespace
        pods = [
            pod for pod in self._seen.pods.by_index("namespace", namespace) if _covers(budget, pod)
        ]

        def scale(owner: OwnerReference) -> int | None:
            found = self._seen.replica_sets.get(f"{namespace}/{owner.name}")
            same = found is not None and found.metadata.uid == owner.uid
            return found.spec.replicas if found is not None and same else None

        status = budget_status(budget, pods, scale, now=now)
        if status != budget.status:
            await self._write(budget, status=msgspec.to_builtins(status))
        return recheck_after(status, now=now)

    async def _write(self, budget: Budget, *, status: dict[str, Any]) -> None:
        """A name that is left out of the disrupted ones must be said to be gone."""
        gone = budget.status.disrupted_pods.keys() - status["disruptedPods"].keys()
        status["disruptedPods"] |= dict.fromkeys(sorted(gone))
        meta = budget.metadata
        written = await self._kube.merge(
            BUDGETS,
            meta.name,
            {"status": status},
            resource_version=meta.resource_version,
            namespace=meta.namespace,
            subresource="status",
        )
        self._seen.budgets.record_write(written)


def _covers(budget: Budget, pod: Pod) -> bool:
    if budget.metadata.namespace != pod.metadata.namespace:
        return False
    return from_object(budget.spec.selector)(pod.metadata.labels)
