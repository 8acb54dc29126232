"""The clock, which simulations replace, and the delays between retries."""

import asyncio
import random
import time
from collections.abc import Coroutine
from typing import Any, Protocol

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


class SteadyClock:
    """A clock whose wall time goes on at one rate: steps of the machine's clock are not in it.

    Limits that it sets and later compares with its own time therefore last as long as they say.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.set()

    def set(self, *, ahead: float = 0.0) -> None:
        """Continue from the machine's present time, or from a time that is ahead of it."""
        self._offset = self._clock.now() + ahead - self._clock.monotonic()

    @property
    def machine_ahead(self) -> float:
        """Seconds by which the machine's clock is ahead of this one; negative: behind it."""
        return self._clock.now() - self.now()

    def now(self) -> float:
        return self._offset + self._clock.monotonic()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        return self._clock.sleep(seconds)


class Backoff:
    """Draw delays between 0 and a ceiling that doubles from `first` to `cap`, until `reset()`."""

    def __init__(self, source: random.Random, *, first: float = 1.0, cap: float = 30.0) -> None:
        self._random = source
        self._first = first
        self._cap = cap
        self._tries = 0

    def next(self) -> float:
        """Return the seconds to wait before the next try."""
        ceiling = min(self._cap, self._first * 2.0 ** min(self._tries, 64))
        self._tries += 1
        return self._random.uniform(0.0, ceiling)

    def reset(self) -> None:
        """Start with `first` again, after a success."""
        self._tries = 0


def jittered(period: float, source: random.Random) -> float:
    """Return the period changed by up to a fifth, so that a fleet does not act in step."""
    return period * (1.0 + source.uniform(-0.2, 0.2))
