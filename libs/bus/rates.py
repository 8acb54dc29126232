"""How many messages of a sender are taken in a second; the others are dropped before they are read.

The server does not limit how fast a client sends. One that floods its subject, tens of thousands of
messages in a second, would keep the event loop of each reader busy with decoding them, and what
others sent waits behind: the reports of nodes that stand drained, and the commands to them. A
subject is one sender's, because permissions say so.
"""

from collections.abc import Callable
from typing import Final

from libs.runtime.clock import Clock
from libs.runtime.logs import logger

WINDOW: Final = 1.0
REMEMBERED: Final = 600.0
"""Seconds for which the rate of a sender that was too fast is told: it may be cut off meanwhile."""
WARN_PERIOD: Final = 60.0
"""Seconds between two lines about senders that are too fast."""
_NAMED: Final = 5
"""How many senders a line names."""

Subject = str | bytes
Admits = Callable[[Subject], bool]
"""Whether the next message on a subject is taken; must not block."""

_log = logger()


class SenderRates:
    """Of one subscription."""

    def __init__(self, clock: Clock, *, most: int) -> None:
        """`most`: messages of a sender in a second."""
        self._clock = clock
        self._most = most
        self._counts: dict[Subject, int] = {}
        """Messages of the present window; forgotten with it, so that there are no more than
        senders."""
        self._began = clock.monotonic()
        self._warned_at = -WARN_PERIOD
        self.dropped = 0
        self.fast: dict[str, float] = {}
        """The senders that were too fast in the last window with messages: their messages in a
        second, by subject."""
        self._lately: dict[str, tuple[float, float]] = {}
        """When a sender was last too fast, and how fast, by subject."""

    def admits(self, subject: Subject) -> bool:
        """Count a message, and return whether it is taken."""
        if self._clock.monotonic() - self._began >= WINDOW:
            self._begin_window()
        count = self._counts.get(subject, 0) + 1
        self._counts[subject] = count
        if count <= self._most:
            return True
        self.dropped += 1
        return False

    def rate_of(self, prefix: str) -> float:
        """Return the messages in a second on such subjects that were too many lately; 0: none."""
        now = self._clock.monotonic()
        if now - self._began >= WINDOW:
            self._begin_window()
        since = now - REMEMBERED
        return max(
            (
                rate
                for subject, (at, rate) in self._lately.items()
                if at >= since and subject.startswith(prefix)
            ),
            default=0.0,
        )

    def _begin_window(self) -> None:
        now = self._clock.monotonic()
        seconds = max(WINDOW, now - self._began)
        self.fast = {
            subject if isinstance(subject, str) else subject.decode(errors="backslashreplace"): (
                count / seconds
            )
            for subject, count in self._counts.items()
            if count > self._most
        }
        self._counts, self._began = {}, now
        if self.fast:
            kept = {key: each for key, each in self._lately.items() if each[0] >= now - REMEMBERED}
            self._lately = kept | {subject: (now, rate) for subject, rate in self.fast.items()}
        if self.fast and now >= self._warned_at + WARN_PERIOD:
            self._warned_at = now
            fastest = sorted(self.fast.items(), key=lambda each: -each[1])[:_NAMED]
            _log.warning(
                "senders are too fast, and most of their messages are dropped unread",
                per_second={subject: round(rate) for subject, rate in fastest},
                senders=len(self.fast),
                most=self._most,
            )
