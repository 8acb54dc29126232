"""The loop of a controller: a queue of keys, a few workers, retries with back-off; deletions."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import ExitStack
from typing import Any, Generic, TypeVar

import msgspec

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.errors import KubeError, NotFound
from libs.kube.queue import WorkQueue
from libs.kube.views import format_time
from libs.runtime.clock import Clock
from libs.testing.cluster.views import PODS, Pod

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

MAX_IN_FLIGHT = 250
"""Most concurrent requests of one reconciliation."""


class ControllerLoop(Generic[K]):
    """Call `reconcile` for each key of the queue; it may return seconds after which to repeat.

    A `KubeError` is retried with the queue's back-off; any other error ends the controller.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        clock: Clock,
        workers: int = 4,
    ) -> None:
        self.queue = WorkQueue[K](clock=clock)
        self._name = name
        self._reconcile = reconcile
        self._workers = workers

    async def run(self, *watched: tuple[Cache[Any], Callable[[Any, Any], None]]) -> None:
        """Run with these change handlers of caches, until cancelled.

        The first handler also gets the objects that its cache holds already, as additions.
        """
        with ExitStack() as stack:
            for cache, handler in watched:
                stack.callback(cache.on_change(handler))
            for cache, handler in watched[:1]:
                for obj in cache:
                    handler(None, obj)
            try:
                async with asyncio.TaskGroup() as group:
                    for number in range(self._workers):
                        group.create_task(self._work(), name=f"{self._name}/{number}")
            finally:
                self.queue.close()

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            try:
                repeat_after = await self._reconcile(key)
            except KubeError:
                self.queue.retry(key)
            else:
                self.queue.forget(key)
                if repeat_after is not None:
                    self.queue.add_after(key, repeat_after)
            finally:
                self.queue.done(key)


async def slow_start_batch(items: Iterable[T], act: Callable[[T], Awaitable[object]]) -> None:
    """Act on the items in batches that double in size while no request fails.

    The first error is raised at the end of its batch; later batches are not started.
    """
    remaining = list(items)
    size = 1
    while remaining:
        batch, remaining = remaining[:size], remaining[size:]
        errors: list[KubeError] = []

        async def guarded(item: T, errors: list[KubeError] = errors) -> None:
            try:
                await act(item)
            except KubeError as error:
                errors.append(error)

        if len(batch) == 1:
            await guarded(batch[0])
        else:
            async with asyncio.TaskGroup() as group:
                for item in batch:
                    group.create_task(guarded(item))
        if errors:
            raise errors[0]
        size = min(2 * size, MAX_IN_FLIGHT)


EXPECTED_FOR = 300.0
"""Seconds after which a deletion that no cache has shown is forgotten."""


class DeletedPods:
    """Delete pods, and treat them as terminating while the cache lags behind."""

    def __init__(self, kube: Kube, *, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._until: dict[str, float] = {}

    async def delete(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._kube.delete(PODS, meta.name, uid=meta.uid, namespace=meta.namespace)
        except NotFound:
            return
        self._until[meta.uid] = self._clock.monotonic() + EXPECTED_FOR

    def forget(self, pod: Pod) -> None:
        self._until.pop(pod.metadata.uid, None)

    def apply_to(self, pods: Iterable[Pod]) -> list[Pod]:
        """Return the pods, with a deletion timestamp on those deleted here."""
        return [self._marked(pod) for pod in pods]

    def _marked(self, pod: Pod) -> Pod:
        until = self._until.get(pod.metadata.uid, 0.0)
        if pod.deleting or until <= self._clock.monotonic():
            return pod
        now = format_time(self._clock.now())
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=now)
        return msgspec.structs.replace(pod, metadata=meta)


class FailureBackoff(Generic[K]):
    """Exponential back-off by key."""

    def __init__(self, *, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._failures: dict[K, tuple[int, float]] = {}
        """Count and end of the back-off."""

    def wait(self, key: K, *, now: float) -> float:
        """Return the seconds left of the key's back-off."""
        return max(0.0, self._failures.get(key, (0, now))[1] - now)

    def count(self, key: K, *, now: float) -> None:
        count, until = self._failures.get(key, (0, now))
        if now - until > 2 * self._longest:
            count = 0
        wait = min(self._longest, self._first * 2.0 ** min(count, 32))
        self._failures[key] = (count + 1, now + wait)
