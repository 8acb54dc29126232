"""One term of leading, the arithmetic that keeps two terms apart, and the fence of a term.

Let R be the time at which the last successful renewal was *sent*, by the leader's monotonic clock:

    R + 8   the term ends: no change is sent any more, the body is cancelled
    R + 11  every change has reached the server or never will: its sender gave up after 3 s
    R + 14  the server has carried it out or never will: the request said `?timeout=3s`
    R + 17  the earliest time at which another candidate takes the lease: 15 s, plus 2 s for clocks
            that run at different rates, after it saw the record change, which was not before R

The 3 s between the last two are a reserve. Only the time of sending counts: a process that was
frozen wakes up with its term over and cannot send.

`FencedTransport` checks the term right before each change is sent, so no delay between decision and
request can bypass it. Reads always pass.
"""

import itertools
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from libs.kube.errors import KubeError, TimedOut
from libs.kube.requests import Request, Response, Transport
from libs.runtime.clock import Clock
from libs.runtime.tasks import bounded

LEASE_SECONDS = 15.0
"""Duration in the record: other candidates wait this long after its last change."""
CLOCK_SKEW = 2.0
"""Additional wait, for clocks that run at different rates."""
TERM_SECONDS = 8.0
"""Length of a term from the sending of its last successful renewal."""
REQUEST_TIMEOUT = 3.0
"""Seconds for a change to reach the server, and again for the server to carry it out."""


class NotLeading(KubeError):
    """The term is over and nothing was sent. Another process may lead: decide again."""


class Term:
    """One term of leading; once over, it never resumes."""

    def __init__(self, *, lease: str, transitions: int, sent: float, clock: Clock) -> None:
        self.lease = lease
        self.transitions = transitions
        """Number of holder changes, including this one."""
        self.end_reason = ""
        """Why the term ended before its time; empty if it did not."""
        self._clock = clock
        self._until = sent + TERM_SECONDS
        self._count = itertools.count()
        self._in_flight: dict[int, float] = {}

    def remaining(self) -> float:
        """Return the seconds left; 0 if the term is over."""
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
        """Extend the term by a renewal sent then; too late, it changes nothing."""
        if self.remaining():
            self._until = max(self._until, sent + TERM_SECONDS)

    def end(self, why: str) -> None:
        """End the term now; the first reason stays."""
        self.end_reason = self.end_reason or why

    def begin_request(self) -> int:
        """Register a change; pass the returned number to `end_request`."""
        number = next(self._count)
        self._in_flight[number] = self._clock.monotonic() + 2 * REQUEST_TIMEOUT
        return number

    def end_request(self, number: int) -> None:
        """Unregister a change whose response has arrived: the server is done with it."""
        del self._in_flight[number]

    def seconds_in_flight(self) -> float:
        """Return the seconds until the server can no longer carry out a change of this term."""
        last = max(self._in_flight.values(), default=0.0)
        return max(0.0, last - self._clock.monotonic())


class FencedTransport:
    """The transport of one term: a change has at most 3 s, here and at the server."""

    def __init__(self, transport: Transport, term: Term, *, clock: Clock) -> None:
        self._transport = transport
        self._term = term
        self._clock = clock

    def __str__(self) -> str:
        return f"{self._transport}, while {self._term.lease} is held"

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        """Send the request; raise `NotLeading` without sending a change if the term is over."""
        async with AsyncExitStack() as stack:
            if request.method == "GET":
                yield await stack.enter_async_context(self._transport.open(request))
            else:
                yield await self._change(request, stack)

    async def _change(self, request: Request, stack: AsyncExitStack) -> Response:
        query = {**request.query, "timeout": _at_most(request.query.get("timeout", ""))}
        request = msgspec.structs.replace(request, query=query)
        self._term.check(str(request))
        number = self._term.begin_request()
        opening = stack.enter_async_context(self._transport.open(request))
        try:
            response = await bounded(opening, seconds=REQUEST_TIMEOUT, clock=self._clock)
        except TimeoutError as error:
            raise TimedOut(str(request), f"no response within {REQUEST_TIMEOUT:g} s") from error
        if response.status < 500:
            self._term.end_request(number)
        return response


def _at_most(timeout: str) -> str:
    seconds = timeout.removesuffix("s")
    # For a server, 0 means no limit.
    shorter = seconds.replace(".", "", 1).isdecimal() and 0 < float(seconds) < REQUEST_TIMEOUT
    return timeout if shorter else f"{REQUEST_TIMEOUT:g}s"
