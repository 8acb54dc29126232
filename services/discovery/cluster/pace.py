"""Limits how often what describes one node is written, whatever its agents report."""

from typing import Final

from libs.runtime.clock import Clock

BURST: Final = 6
"""Rounds of writes that may follow each other at once."""
PERIOD: Final = 20.0
"""Seconds per round in the long run."""


class Pace:
    """Keeps only the nodes that were written a short time ago."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._used_until: dict[str, float] = {}
        """By node: the time at which all rounds are available again."""

    def take(self, node: str) -> float:
        """Take a round; or return the seconds until one is available."""
        now = self._clock.monotonic()
        until = max(now, self._used_until.get(node, now))
        wait = until - now - (BURST - 1) * PERIOD
        if wait > 0:
            return wait
        self._used_until.pop(node, None)
        self._used_until[node] = until + PERIOD
        self._drop_two(now)
        return 0.0

    def forget(self, node: str) -> None:
        self._used_until.pop(node, None)

    def _drop_two(self, now: float) -> None:
        """Drop up to two entries that are over, from the one that was used least recently."""
        for node, _ in list(zip(self._used_until, range(2), strict=False)):
            if self._used_until[node] > now:
                return
            del self._used_until[node]
