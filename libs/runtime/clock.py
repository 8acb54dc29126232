"""The clock that code is given instead of reading the operating system's."""

import asyncio
import time
from typing import Protocol

# CLOCK_BOOTTIME also runs while the machine is suspended, as other machines' clocks do: a leader
# that was suspended must notice that its lease has expired.
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Wall time for display, monotonic time for deadlines, and a way to wait."""

    def now(self) -> float:
        """Return unix seconds."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait by the monotonic clock."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.clock_gettime(_MONOTONIC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
