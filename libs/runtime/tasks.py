"""Guarded tasks: named, owned, and never lost in silence. The only place that catches every error.

What a failure means for the service is not decided here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
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
        """Start what must run until it is cancelled from here: if it returns, it has failed."""
        self._start(name, coroutine, self._forever, refused=self._stopping)

    def finite(self, name: str, coroutine: Coroutine[Any, Any, object]) -> None:
        """Start what ends by itself, and fails only by raising."""
        self._start(name, coroutine, self._finite, refused=self._closed)

    def running(self) -> list[str]:
        """Names of the tasks that have not ended."""
        return [*self._forever.values(), *self._finite.values()]

    async def stop_forever(self) -> None:
        """Cancel what runs for ever, and wait until it has ended."""
        self._stopping = True
        for task in self._forever:
            task.cancel()
        await _ended(self._forever)

    async def join(self) -> None:
        """Wait until what ends by itself has ended, also what is started meanwhile."""
        await _ended(self._finite)

    async def close(self) -> None:
        """Cancel everything, take nothing new, and wait until all have ended."""
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
        task.add_done_callback(partial(self._over, name))

    def _over(self, name: str, task: asyncio.Task[object]) -> None:
        lasting = self._forever.pop(task, None) is not None
        self._finite.pop(task, None)
        if task.cancelled():
            if lasting and not self._stopping:
                self._failed(fatal(f"{name} was cancelled, but not by a stop"))
        elif (error := task.exception()) is not None:
            self._failed(fatal(error, what=f"{name} failed"))
        elif lasting and not self._stopping:
            self._failed(fatal(f"{name} returned, but must run until it is stopped"))


async def attempt(awaitable: Awaitable[object]) -> Exception | None:
    """Await a step that must not stop those after it, and give back the error that it raised."""
    try:
        await awaitable
    except Exception as error:  # noqa: BLE001  (whatever it is, the next step of a stop must run)
        return error
    return None


async def bounded(awaitable: Awaitable[T], *, seconds: float, clock: Clock) -> T:
    """`asyncio.timeout` by an injected clock: past `seconds`, what is awaited is cancelled."""
    owner = asyncio.current_task()
    if owner is None:
        raise RuntimeError("a deadline needs a task that it can cancel")
    before = owner.cancelling()
    expired = False

    async def cut() -> None:
        nonlocal expired
        await clock.sleep(seconds)
        expired = True
        owner.cancel()

    cutter = asyncio.create_task(cut(), name="deadline")
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
            cutter.cancel()
            await asyncio.wait({cutter})


async def _ended(group: dict[asyncio.Task[object], str]) -> None:
    while group:
        await asyncio.wait(list(group))
