"""Pods that are asked to leave, again and again, until they are gone or nobody wants it any more.

A job per node: desired state, which a new leader begins anew. Each pod is asked by itself, so that
one which is refused holds up no other. Which pods these are is decided elsewhere.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from libs.contracts.events import EvictionEvent as Told
from libs.kube.errors import KubeError, TooManyRequests
from libs.kube.lease.term import NotLeading
from libs.kube.responses import BlockedByBudget, Evicted, PodGone
from libs.rollout.decision import EvictPods, PodRef
from libs.runtime.backoff import Backoff
from libs.runtime.env import Env
from services.scheduler.effects.writes import Writes
from services.scheduler.node_state import NodeStates, PendingEviction

RETRY_FIRST: Final = 2.0
RETRY_MAX: Final = 30.0
"""Seconds between two tries where a budget refuses."""


class Evictions:
    """The jobs of one leader."""

    def __init__(
        self,
        writes: Writes,
        *,
        node_states: NodeStates,
        env: Env,
        on_change: Callable[[str], None],
        on_answer: Callable[[str, str, Told], None],
    ) -> None:
        self._hands = writes
        self._memory = node_states
        self._clock = env.clock
        self._random = env.random
        self._changed = on_change
        self._told = on_answer
        self._tasks: dict[str, dict[str, asyncio.Task[None]]] = {}

    def evict(self, name: str, action: EvictPods) -> None:
        """These pods of a node are to leave, and no others."""
        tasks = self._tasks.setdefault(name, {})
        going = self._memory.of(name).evictions
        wanted = {pod.uid: pod for pod in action.pods}
        for uid in list(going):
            if uid not in wanted or going[uid].by_force != action.by_force:
                del going[uid]
                tasks.pop(uid).cancel()
        for uid, pod in wanted.items():
            if uid not in going:
                going[uid] = PendingEviction(since=self._clock.now(), by_force=action.by_force)
                asking = self._ask(name, pod, going[uid])
                tasks[uid] = asyncio.create_task(asking, name=f"evict {pod.namespace}/{pod.name}")
        self._changed(name)

    def cancel(self, name: str) -> None:
        """Nobody of this node is to leave."""
        for task in self._tasks.pop(name, {}).values():
            task.cancel()
        self._memory.of(name).evictions.clear()
        self._changed(name)

    async def close(self) -> None:
        """Ask nobody any more."""
        tasks = [task for jobs in self._tasks.values() for task in jobs.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _ask(self, name: str, pod: PodRef, going: PendingEviction) -> None:
        backoff = Backoff(self._random, first=RETRY_FIRST, cap=RETRY_MAX)
        while True:
            least = 0.0
            try:
                answer = await self._hands.evict_pod(pod, by_force=going.by_force)
            except NotLeading:
                return
            except TooManyRequests as error:
                least = error.retry_after or 0.0
                self._refused(name, pod, going, "")
            except KubeError:
                self._refused(name, pod, going, "")
            else:
                match answer:
                    case Evicted():
                        self._refused(name, pod, going, "")
                        self._tell(name, pod, "evicted", "")
                        return
                    case PodGone():  # it counts as asked until that is seen
                        self._refused(name, pod, going, "")
                        return
                    case BlockedByBudget():
                        least = answer.retry_after or 0.0
                        self._refused(name, pod, going, answer.why)
            await self._clock.sleep(max(min(least, RETRY_MAX), RETRY_FIRST / 2 + backoff.next()))

    def _refused(self, name: str, pod: PodRef, going: PendingEviction, why: str) -> None:
        if going.refused != why:
            going.refused = why
            if why:
                self._tell(name, pod, "refused", why)
            self._changed(name)

    def _tell(self, name: str, pod: PodRef, answer: str, detail: str) -> None:
        body = Told(
            namespace=pod.namespace, pod=pod.name, pod_uid=pod.uid, answer=answer, detail=detail
        )
        self._told(name, f"pod {pod.namespace}/{pod.name} {answer}", body)
