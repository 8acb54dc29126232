"""Evict pods, each retried until it is gone or the eviction is cancelled.

Every pod has a task of its own: one that is refused does not delay the others. A new leader starts
all evictions anew.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from libs.contracts.events import EvictionEvent
from libs.kube.client import BlockedByBudget, Evicted, PodGone
from libs.kube.errors import KubeError, TooManyRequests
from libs.kube.lease.term import NotLeading
from libs.rollout.decision import EvictPods, PodRef
from libs.runtime.clock import Backoff
from libs.runtime.env import Env
from services.scheduler.effects.writes import Writes
from services.scheduler.node_state import NodeStates, PendingEviction

RETRY_FIRST: Final = 2.0
RETRY_MAX: Final = 30.0
"""Seconds between two attempts."""


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
        backoff = Backoff(self._random, first=RETRY_FIRST, cap=RETRY_MAX)
        while True:
            retry_after, refused = 0.0, ""
            try:
                answer = await self._writes.evict_pod(pod, by_force=pending.by_force)
            except NotLeading:
                return
            except TooManyRequests as error:
                retry_after = error.retry_after or 0.0
            except KubeError:
                pass
            else:
                match answer:
                    case Evicted():
                        self._set_refused(name, pod, pending, "")
                        self._report(name, pod, "evicted", "")
                        return
                    case PodGone():  # pending until the watch shows that it is gone
                        self._set_refused(name, pod, pending, "")
                        return
                    case BlockedByBudget():
                        retry_after, refused = answer.retry_after or 0.0, answer.message
            self._set_refused(name, pod, pending, refused)
            delay = RETRY_FIRST / 2 + backoff.next()
            await self._clock.sleep(max(min(retry_after, RETRY_MAX), delay))

    def _set_refused(self, name: str, pod: PodRef, pending: PendingEviction, why: str) -> None:
        if pending.refused != why:
            pending.refused = why
            if why:
                self._report(name, pod, "refused", why)
            self._on_change(name)

    def _report(self, name: str, pod: PodRef, answer: str, detail: str) -> None:
        event = EvictionEvent(
            namespace=pod.namespace, pod=pod.name, pod_uid=pod.uid, answer=answer, detail=detail
        )
        message = f"pod {pod.namespace}/{pod.name} {answer}"
        if detail:
            message = f"eviction of pod {pod.namespace}/{pod.name} {answer}: {detail}"
        self._on_answer(name, message, event)
