"""Blocking calls that take virtual time, as in threads of a busy machine."""

from collections.abc import Callable
from typing import TypeVar

from libs.runtime.clock import Clock

T = TypeVar("T")


class DelayedOffload:
    """Does the work at once and returns its result after `seconds`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds = 0.0

    async def run(self, work: Callable[[], T]) -> T:
        result = work()
        if self.seconds:
            await self._clock.sleep(self.seconds)
        return result
