"""Waits for what may never come, many of them after another, at the cost of one task."""

import asyncio
from collections.abc import Awaitable
from typing import Self, TypeVar

from libs.runtime.clock import Clock

T = TypeVar("T")


class IdleTimeout:
    """While it is entered, no single wait in it lasts longer than `seconds`.

    It cancels only who waits right now, so what happens between two waits takes its own time.
    """

    def __init__(self, *, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._waiting: asyncio.Task[object] | None = None
        self._since = 0.0
        self._ended: Exception | None = None

    async def __aenter__(self) -> Self:
        self._watchman = asyncio.create_task(self._watch(), name="vigil")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watchman.cancel()
        await asyncio.wait({self._watchman})

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Its result; `TimeoutError` after too long, or the error that `end` was given."""
        owner = asyncio.current_task()
        if owner is None:
            raise RuntimeError("a wait with an end needs a task that can be cancelled")
        if self._ended is not None:
            raise self._ended
        before = owner.cancelling()
        self._since = self._clock.monotonic()
        self._waiting = owner
        try:
            return await awaitable
        except asyncio.CancelledError:
            if self._ended is not None and owner.cancelling() - 1 <= before:
                raise self._ended from None
            raise
        finally:
            self._waiting = None
            if self._ended is not None:
                owner.uncancel()

    def abort(self, error: Exception) -> None:
        """End the wait that is going on, if one is, with this error."""
        if self._waiting is not None and self._ended is None:
            self._ended = error
            self._waiting.cancel()

    async def _watch(self) -> None:
        while self._ended is None:
            waited = self._clock.monotonic() - self._since if self._waiting is not None else 0.0
            if waited >= self._seconds:
                self.abort(TimeoutError(f"nothing came for {self._seconds:.0f} s"))
            else:
                await self._clock.sleep(self._seconds - waited)
