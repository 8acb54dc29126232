"""A transport that sends changes only while its owner leads.

The term is checked right before each send, so no delay between decision and request gets past it.
Reads always pass.
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
        self._term.check(describe_request(request))
        number = self._term.begin_request()
        opening = stack.enter_async_context(self._transport.open(request))
        try:
            response = await bounded(opening, seconds=REQUEST_TIMEOUT, clock=self._clock)
        except TimeoutError as error:
            raise TimedOut(
                describe_request(request), f"no response within {REQUEST_TIMEOUT:g} s"
            ) from error
        if response.status < 500:
            self._term.end_request(number)
        return response


def _at_most(timeout: str) -> str:
    seconds = timeout.removesuffix("s")
    # 0 means no limit to a server.
    shorter = seconds.replace(".", "", 1).isdecimal() and 0 < float(seconds) < REQUEST_TIMEOUT
    return timeout if shorter else f"{REQUEST_TIMEOUT:g}s"
