"""Guarded tasks: named, owned, with every failure reported. The only place that catches all errors.

The owner decides what a failure means for the service.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from libs.runtime.clock import Clock
from libs.runtime.fatal import Fatal, fatal

T = TypeVar("T")


class Tasks:
    """The tasks of one owner; a failure is reported once, with the task's name and its cause."""

    def __init__(self, owner: str, *, failed: Callable[[Fatal], None]) -> None:
        self._owner = owner
        self._failed = failed
        # Dictionaries, not sets: tasks are cancelled in the order in which they were started.
        self._forever: dict[asyncio.Task[object], str] = {}
        self._finite: dict[asyncio.Task[object], str] = {}
        self._stopping = False
        self._closed = False

    def forever(self, name: str, coroutine: Coroutine[Any, Any, object]) -> None:
        """Start a task that runs until `stop_forever`; its return is a failure."""
        self._start(name, coroutine, self._forever, refused=self._stopping)

    def finite(self, name: str, coroutine: Coroutine[Any, Any, object]) -> None:
        """Start a task that ends by itself; it fails only by raising."""
        self._start(name, coroutine, self._finite, refused=self._closed)

    def running(self) -> list[str]:
        """Return the names of the tasks that have not ended."""
        return [*self._forever.values(), *self._finite.values()]

    async def stop_forever(self) -> None:
        """Cancel the tasks of `forever`, and wait until they have ended."""
        self._stopping = True
        for task in self._forever:
            task.cancel()
        await _wait_empty(self._forever)

    async def join(self) -> None:
        """Wait until all tasks of `finite` have ended, those started meanwhile included."""
        await _wait_empty(self._finite)

    async def close(self) -> None:
        """Refuse new tasks, cancel all others and wait until they have ended."""
        self._closed = True
        for task in self._finite:
            task.cancel()
        await self.stop_forever()
        await self.join()

    def _start(
        self,
        name: str,
        coroutine: Coroutine[Any, Any, object],
        group: dict[asyncio.Task[object], str],
        *,
        refused: bool,
    ) -> None:
        if refused:
            coroutine.close()
            raise RuntimeError(f"{self._owner} is stopping and cannot start {name}")
        task = asyncio.create_task(coroutine, name=f"{self._owner}/{name}")
        group[task] = name
        task.add_done_callback(partial(self._done, name))

    def _done(self, name: str, task: asyncio.Task[object]) -> None:
        is_forever = self._forever.pop(task, None) is not None
        self._finite.pop(task, None)
        if task.cancelled():
            if is_forever and not self._stopping:
                self._failed(fatal(f"{name} was cancelled unexpectedly"))
        elif (error := task.exception()) is not None:
            self._failed(fatal(error, what=f"{name} failed"))
        elif is_forever and not self._stopping:
            self._failed(fatal(f"{name} returned, but must run until it is stopped"))


async def attempt(awaitable: Awaitable[object]) -> Exception | None:
    """Await one step of a sequence that must continue; return the error that the step raised."""
    try:
        await awaitable
    except Exception as error:  # noqa: BLE001  (the next step of a stop must run)
        return error
    return None


async def bounded(awaitable: Awaitable[T], *, seconds: float, clock: Clock) -> T:
    """Await with a timeout by the given clock, as `asyncio.timeout` does by the loop's."""
    owner = asyncio.current_task()
    if owner is None:
        raise RuntimeError("a deadline needs a task that it can cancel")
    before = owner.cancelling()
    expired = False

    async def expire() -> None:
        nonlocal expired
        await clock.sleep(seconds)
        expired = True
        owner.cancel()

    timer = asyncio.create_task(expire(), name="deadline")
    try:
        return await awaitable
    except asyncio.CancelledError as cancelled:
        if expired and owner.cancelling() - 1 <= before:
            raise TimeoutError(f"not done after {seconds:.3g} s") from cancelled
        raise
    finally:
        if expired:
            owner.uncancel()
        else:
            timer.cancel()
            await asyncio.wait({timer})


async def wait_up_to(seconds: float, event: asyncio.Event) -> None:
    """Return once the event is set, or after this time by the loop's clock."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def _wait_empty(group: dict[asyncio.Task[object], str]) -> None:
    while group:
        await asyncio.wait(list(group))
