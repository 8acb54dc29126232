"""How long to wait before trying again: exponential, with full jitter."""

import random


class Backoff:
    """`next()` draws from 0 up to a ceiling that doubles from `first` to `cap`, until `reset()`."""

    def __init__(self, source: random.Random, *, first: float = 1.0, cap: float = 30.0) -> None:
        self._random = source
        self._first = first
        self._cap = cap
        self._tries = 0

    def next(self) -> float:
        """Seconds to wait now."""
        ceiling = min(self._cap, self._first * 2.0 ** min(self._tries, 64))
        self._tries += 1
        return self._random.uniform(0.0, ceiling)

    def reset(self) -> None:
        """It worked: the next failure starts small again."""
        self._tries = 0


def jittered(period: float, source: random.Random) -> float:
    """A period, up to a fifth of it earlier or later, so that a fleet does not act in step."""
    return period * (1.0 + source.uniform(-0.2, 0.2))
