"""A timeout for each of many successive waits, at the cost of one task."""

import asyncio
from collections.abc import Awaitable
from typing import Self, TypeVar

from libs.runtime.clock import Clock

T = TypeVar("T")


class IdleTimeout:
    """While entered, no single wait lasts longer than `seconds`.

    Only a wait is cancelled; the time between two waits does not count.
    """

    def __init__(self, *, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._waiting: asyncio.Task[object] | None = None
        self._since = 0.0
        self._error: Exception | None = None

    async def __aenter__(self) -> Self:
        self._watchdog = asyncio.create_task(self._watch(), name="idle timeout")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watchdog.cancel()
        await asyncio.wait({self._watchdog})

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Return the result; raise `TimeoutError` after too long, or the error given to `abort`."""
        owner = asyncio.current_task()
        if owner is None:
            raise RuntimeError("an idle timeout needs a task that can be cancelled")
        if self._error is not None:
            raise self._error
        before = owner.cancelling()
        self._since = self._clock.monotonic()
        self._waiting = owner
        try:
            return await awaitable
        except asyncio.CancelledError:
            if self._error is not None and owner.cancelling() - 1 <= before:
                raise self._error from None
            raise
        finally:
            self._waiting = None
            if self._error is not None:
                owner.uncancel()

    def abort(self, error: Exception) -> None:
        """End the current wait, if any, with this error."""
        if self._waiting is not None and self._error is None:
            self._error = error
            self._waiting.cancel()

    async def _watch(self) -> None:
        while self._error is None:
            idle = self._clock.monotonic() - self._since if self._waiting is not None else 0.0
            if idle >= self._seconds:
                self.abort(TimeoutError(f"nothing received for {self._seconds:.0f} s"))
            else:
                await self._clock.sleep(self._seconds - idle)
