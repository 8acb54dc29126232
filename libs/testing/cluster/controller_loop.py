"""The loop of a controller: keys from a queue, a bounded number of hands, and another try later.

What the API server refuses is tried again with the queue's back-off; any other failure is a mistake
of ours, and ends the controller. Must not know what a key means.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Generic, TypeVar

from libs.kube.errors import KubeError
from libs.kube.queue import WorkQueue
from libs.runtime.clock import Clock

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

MAX_IN_FLIGHT = 250
"""Requests of one reconciliation that may be under way together."""


class ControllerLoop(Generic[K]):
    """`reconcile` brings one key in order; it may give the seconds after which to look again."""

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
        self._hands = workers

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as hands:
                for number in range(self._hands):
                    hands.create_task(self._hand(), name=f"{self._name}/{number}")
        finally:
            self.queue.close()

    async def _hand(self) -> None:
        while True:
            key = await self.queue.get()
            try:
                again = await self._reconcile(key)
            except KubeError:
                self.queue.retry(key)
            else:
                self.queue.forget(key)
                if again is not None:
                    self.queue.add_after(key, again)
            finally:
                self.queue.done(key)


async def slow_start_batch(items: Iterable[T], act: Callable[[T], Awaitable[object]]) -> None:
    """Act on each: first on one, then on ever more together while all goes well.

    The first refusal is raised when its batch is over, and nothing more is begun.
    """
    waiting = list(items)
    size = 1
    while waiting:
        batch, waiting = waiting[:size], waiting[size:]
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
