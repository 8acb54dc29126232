"""An event loop in virtual time, and its clock."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

Virtual = Callable[[Coroutine[Any, Any, None]], float]


class _Skipping(selectors.DefaultSelector):
    """Advance the time to the next timer instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everything waits, and no timer will ever wake it")
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


class LoopClock:
    def now(self) -> float:
        return 1_800_000_000.0 + self.monotonic()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
