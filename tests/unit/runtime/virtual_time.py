"""An event loop in virtual time, its clock, and tests that run on it."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


class _Skipping(selectors.DefaultSelector):
    """Advance the time to the next timer instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("all tasks wait, and no timer is set")
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


def in_virtual_time(
    *, takes: float | None = None
) -> Callable[[Callable[P, Coroutine[Any, Any, None]]], Callable[P, None]]:
    """Run a test in virtual time; check that it leaves no task, and how long it `takes`."""

    async def leaving_no_task(test: Coroutine[Any, Any, None]) -> float:
        await test
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return round(asyncio.get_running_loop().time(), 6)

    def decorate(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            with asyncio.Runner(loop_factory=VirtualLoop) as runner:
                seconds = runner.run(leaving_no_task(test(*args, **kwargs)))
            assert takes in (None, seconds)

        return run

    return decorate
