"""Evict pods, each retried until it is gone or the eviction is cancelled.

Every pod has a task of its own: one that is refused does not delay the others. A new leader starts
all evictions anew.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from libs.contracts.events import EvictionEvent
from libs.kube.client import BlockedByBudget, Evicted, EvictionResult
from libs.kube.errors import KubeError, TooManyRequests
from libs.kube.lease.term import NotLeading
from libs.rollout.decision import EvictPods, PodRef
from libs.runtime.clock import Backoff
from libs.runtime.env import Env
from libs.runtime.fatal import describe_error
from libs.runtime.logs import logger
from services.scheduler.effects.writes import Writes
from services.scheduler.node_state import FAILURES_UNTIL_REFUSED, NodeStates, PendingEviction

RETRY_FIRST: Final = 2.0
RETRY_MAX: Final = 30.0
"""Seconds between two attempts."""

_log = logger()


class Evictions:
    """The evictions of one leader, by node and pod uid."""

    def __init__(
        self,
        writes: Writes,
        *,
        node_states: NodeStates,
        env: Env,
        on_change: Callable[[str], None],
        on_answer: Callable[[str, str, EvictionEvent], None],
    ) -> None:
        self._writes = writes
        self._node_states = node_states
        self._clock = env.clock
        self._random = env.random
        self._on_change = on_change
        self._on_answer = on_answer
        self._tasks: dict[str, dict[str, asyncio.Task[None]]] = {}

    def evict(self, name: str, action: EvictPods) -> None:
        """Evict these pods of a node; cancel the node's other evictions."""
        tasks = self._tasks.setdefault(name, {})
        pending = self._node_states.state_of(name).evictions
        pods = {pod.uid: pod for pod in action.pods}
        for uid in list(pending):
            if uid not in pods or pending[uid].by_force != action.by_force:
                del pending[uid]
                tasks.pop(uid).cancel()
        for uid, pod in pods.items():
            if uid not in pending:
                pending[uid] = PendingEviction(since=self._clock.now(), by_force=action.by_force)
                tasks[uid] = asyncio.create_task(
                    self._evict_pod(name, pod, pending[uid]),
                    name=f"evict {pod.namespace}/{pod.name}",
                )
        self._on_change(name)

    def cancel(self, name: str) -> None:
        """Cancel all evictions of a node."""
        for task in self._tasks.pop(name, {}).values():
            task.cancel()
        self._node_states.state_of(name).evictions.clear()
        self._on_change(name)

    async def close(self) -> None:
        tasks = [task for by_uid in self._tasks.values() for task in by_uid.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _evict_pod(self, name: str, pod: PodRef, pending: PendingEviction) -> None:
        """Try until the pod is evicted or gone; it stays pending until the watch shows that."""
        backoff = Backoff(self._random, first=RETRY_FIRST, cap=RETRY_MAX)
        while True:
            retry_after: float | None = None
            try:
                answer = await self._writes.evict_pod(pod, by_force=pending.by_force)
                self._answered(name, pod, pending, answer)
            except NotLeading:
                return
            except Exception as error:  # noqa: BLE001  (a defect too is shown on its node)
                self._failed(name, pod, pending, error)
                if isinstance(error, TooManyRequests):
                    retry_after = error.retry_after
            else:
                if not isinstance(answer, BlockedByBudget):
                    return
                retry_after = answer.retry_after
            delay = RETRY_FIRST / 2 + backoff.next()
            await self._clock.sleep(max(min(retry_after or 0.0, RETRY_MAX), delay))

    def _answered(
        self, name: str, pod: PodRef, pending: PendingEviction, answer: EvictionResult
    ) -> None:
        refused = answer.message if isinstance(answer, BlockedByBudget) else ""
        changed = pending.refused != refused or pending.failed
        pending.failures, pending.failed = 0, ""
        if pending.refused != refused:
            pending.refused = refused
            if refused:
                self._report(name, pod, "refused", refused)
        if isinstance(answer, Evicted):
            self._report(name, pod, "evicted", "")
        if changed:
            self._on_change(name)

    def _failed(self, name: str, pod: PodRef, pending: PendingEviction, error: Exception) -> None:
        """Count a failed request; several in a row are shown on the node."""
        why = str(error) if isinstance(error, KubeError) else describe_error(error)
        if not isinstance(error, KubeError):
            _log.error("unexpected error in an eviction", node=name, pod=pod.name, exc_info=error)
        pending.failures += 1
        if pending.failures >= FAILURES_UNTIL_REFUSED and pending.failed != why:
            pending.failed = why
            self._report(name, pod, "failed", why)
            self._on_change(name)

    def _report(self, name: str, pod: PodRef, answer: str, detail: str) -> None:
        event = EvictionEvent(
            namespace=pod.namespace, pod=pod.name, pod_uid=pod.uid, answer=answer, detail=detail
        )
        message = f"pod {pod.namespace}/{pod.name} {answer}"
        if detail:
            message = f"eviction of pod {pod.namespace}/{pod.name} {answer}: {detail}"
        self._on_answer(name, message, event)
