"""A transport that lets changes out only while its owner leads.

It is asked right before each send, so nothing that waits, sleeps or was frozen between decision and
request gets by. What only reads passes.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from libs.kube.errors import TimedOut
from libs.kube.lease.term import REQUEST_TIMEOUT, Term
from libs.kube.transport import Request, Response, Transport, describe_request
from libs.runtime.clock import Clock
from libs.runtime.tasks import bounded


class FencedTransport:
    """The way out of one term: a change gets at most its 3 s, here and at the server."""

    def __init__(self, transport: Transport, term: Term, *, clock: Clock) -> None:
        self._transport = transport
        self._term = term
        self._clock = clock

    def __str__(self) -> str:
        return f"{self._transport}, while {self._term.lease} is held"

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        """Send it, or raise `NotLeading` and send nothing."""
        async with AsyncExitStack() as opened:
            if request.method == "GET":
                yield await opened.enter_async_context(self._transport.open(request))
            else:
                yield await self._change(request, opened)

    async def _change(self, request: Request, opened: AsyncExitStack) -> Response:
        query = {**request.query, "timeout": _at_most(request.query.get("timeout", ""))}
        request = msgspec.structs.replace(request, query=query)
        self._term.check(describe_request(request))
        number = self._term.begin_request()
        opening = opened.enter_async_context(self._transport.open(request))
        try:
            answer = await bounded(opening, seconds=REQUEST_TIMEOUT, clock=self._clock)
        except TimeoutError as error:
            raise TimedOut(
                describe_request(request), f"no answer within {REQUEST_TIMEOUT:g} s"
            ) from error
        if answer.status < 500:
            self._term.end_request(number)
        return answer


def _at_most(asked: str) -> str:
    seconds = asked.removesuffix("s")
    # To a server 0 is no limit at all.
    shorter = seconds.replace(".", "", 1).isdecimal() and 0 < float(seconds) < REQUEST_TIMEOUT
    return asked if shorter else f"{REQUEST_TIMEOUT:g}s"
