"""One term of leading, and the arithmetic that keeps two of them apart.

Let R be the moment at which the last renewal that the server granted was *sent*, by the monotonic
clock of whoever leads:

    R + 8   the term is over: nothing that changes anything is sent any more, the body is cancelled
    R + 11  what was sent has reached the server, or never will: its sender gave up after 3 s
    R + 14  the server has carried it out, or never will: it was told `?timeout=3s`
    R + 17  the earliest at which another takes the lease: 15 s, and 2 s more for clocks that run
            differently, after he saw the record change last, which was not before R

Between the last two, 3 s are left for what no clock promises. Only what is sent counts: a process
that was frozen meanwhile wakes up with its term over, and finds every way out shut.
"""

import itertools

from libs.kube.errors import KubeError
from libs.runtime.clock import Clock

LEASE_SECONDS = 15.0
"""What the record says: others wait so long after its last change."""
CLOCK_SKEW = 2.0
"""And so much longer."""
TERM_SECONDS = 8.0
"""A term lasts so long from the sending of its last good renewal."""
REQUEST_TIMEOUT = 3.0
"""What may change something has so long to arrive, and then so long at the server."""


class NotLeading(KubeError):
    """The term is over; nothing was sent. Another may lead: whatever was planned, plan it anew."""


class Term:
    """Leading, until it is over. It never begins again."""

    def __init__(self, *, lease: str, transitions: int, sent: float, clock: Clock) -> None:
        self.lease = lease
        self.transitions = transitions
        """How often the lease changed hands, this time included."""
        self.end_reason = ""
        """Why this term is over although nobody has waited for its end; empty while it is not."""
        self._clock = clock
        self._until = sent + TERM_SECONDS
        self._count = itertools.count()
        self._afoot: dict[int, float] = {}

    def remaining(self) -> float:
        """Seconds that are left; none if it is over."""
        return 0.0 if self.end_reason else max(0.0, self._until - self._clock.monotonic())

    def check(self, tried: str) -> None:
        """Raise `NotLeading` if `tried` must not be sent now."""
        if self.end_reason:
            raise NotLeading(tried, f"not sent: {self.end_reason}")
        if not self.remaining():
            raise NotLeading(
                tried,
                f"not sent: {self.lease} was not renewed for {TERM_SECONDS:g} s, another may lead",
            )

    def renew(self, sent: float) -> None:
        """A renewal that was sent then has been granted; if that comes late, nothing changes."""
        if self.remaining():
            self._until = max(self._until, sent + TERM_SECONDS)

    def end(self, why: str) -> None:
        """Over, whatever the clock says; the first reason stays."""
        self.end_reason = self.end_reason or why

    def begin_request(self) -> int:
        """A change goes out; the number is for `settled`."""
        number = next(self._count)
        self._afoot[number] = self._clock.monotonic() + 2 * REQUEST_TIMEOUT
        return number

    def end_request(self, number: int) -> None:
        """Its answer is there: the server will do no more about it."""
        del self._afoot[number]

    def seconds_in_flight(self) -> float:
        """Seconds until the server can do nothing more of what was sent in this term."""
        last = max(self._afoot.values(), default=0.0)
        return max(0.0, last - self._clock.monotonic())
