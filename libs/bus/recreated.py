"""What a reader of STATE keeps when the stream was lost and created again.

A lost stream withdraws no report. Agents that stay connected do not notice the loss; they store
each report again within `ALL_REPEATED`. Until then a missing report may still be true, and a node
in flight that lost its proof would fail.
"""

from typing import Final

from libs.bus.reporter import REPEAT
from libs.runtime.clock import Clock

ALL_REPEATED: Final = 1.5 * REPEAT
"""Seconds after which each agent has repeated its reports: its period, jitter and some tries."""


class RecreatedStream:
    """Whether what a reading did not repeat is gone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._repeating_until = clock.monotonic()

    def began(self, recreated: bool, /) -> None:
        """Count from here if the stream was created again since the last reading."""
        if recreated:
            self._repeating_until = self._clock.monotonic() + ALL_REPEATED

    @property
    def is_repeated(self) -> bool:
        """Whether agents have had the time to repeat all that they reported before."""
        return self._clock.monotonic() >= self._repeating_until
