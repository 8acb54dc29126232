"""Time, as it is given to everything: nobody asks the operating system by himself."""

import asyncio
import time
from typing import Protocol

# A machine that was suspended has not stood still for others: who led before must see that.
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Two clocks and a way to wait. Deadlines are monotonic; what people read is `now`."""

    def now(self) -> float:
        """Unix seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait so long by the monotonic clock."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> float:
        """Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that only grow, on Linux also while the machine is suspended."""
        return time.clock_gettime(_MONOTONIC)

    async def sleep(self, seconds: float) -> None:
        """Wait so long by the event loop's clock."""
        await asyncio.sleep(seconds)
