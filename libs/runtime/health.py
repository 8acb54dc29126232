"""What the probes of a process are told: that it lives, that it can serve, or why not, in words."""

from collections.abc import Sequence

from libs.runtime.clock import Clock
from libs.runtime.http import Page

TICK_SECONDS = 1.0
STALL_SECONDS = 15.0
"""Far above any pause that a busy loop has, and far below what a prober's patience costs."""


class LoopWatchdog:
    """Tells whether the event loop still comes round."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self._last = self._clock.monotonic()
            await self._clock.sleep(TICK_SECONDS)

    def stall_reasons(self) -> list[str]:
        """Why the process should be restarted, in words; empty when it should not."""
        silence = self._clock.monotonic() - self._last
        if silence <= STALL_SECONDS:
            return []
        return [f"the event loop did not come round for {silence:.0f} s"]


def probe_page(reasons: Sequence[str]) -> Page:
    """200 when there is no reason against it, else 503 with one reason a line."""
    if not reasons:
        return Page(b"ok\n")
    return Page("".join(f"{reason}\n" for reason in reasons).encode(), status=503)
