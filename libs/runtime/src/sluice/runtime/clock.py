"""Time, as it is given to everything: nobody asks the operating system by himself."""

import asyncio
import time
from typing import Protocol


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
        """Seconds that only grow."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait so long by the event loop's clock."""
        await asyncio.sleep(seconds)
