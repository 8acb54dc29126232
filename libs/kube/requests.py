"""Requests with a deadline and streams; failures are typed errors (`errors`) and never retried
here.
"""

from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import msgspec

from libs.kube.errors import TimedOut
from libs.kube.responses import is_success, response_error
from libs.kube.transport import Request, Response, Transport, describe_request
from libs.runtime.clock import Clock
from libs.runtime.tasks import bounded

T = TypeVar("T")

DEFAULT_TIMEOUT = 10.0
"""Default limit of a request in seconds."""

JSON = "application/json"


class BaseClient:
    """One API server and one field manager."""

    def __init__(self, transport: Transport, *, manager: str, clock: Clock) -> None:
        self._transport = transport
        self.manager = manager
        self._clock = clock

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        within: float = DEFAULT_TIMEOUT,
    ) -> bytes:
        """Return the body of a successful response; raise a typed error, `TimedOut` after `within`
        seconds.

        A change carries the same deadline to the server, which then does not carry it out after the
        client has given up.
        """
        parameters = dict(query or {})
        if method != "GET":
            parameters.setdefault("timeout", f"{within:.3f}s")
        request = Request(
            method=method,
            path=path,
            query=parameters,
            headers=self._headers() | ({} if body is None else {"content-type": content_type}),
            body=b"" if body is None else msgspec.json.encode(body),
        )
        return await self._within(request, self._exchange(request), within)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], within: float = DEFAULT_TIMEOUT
    ) -> AsyncGenerator[Response]:
        """Open a response without end; `within` limits only the wait for its head."""
        request = Request(method="GET", path=path, query=query, headers=self._headers())
        opened = self._transport.open(request)
        async with AsyncExitStack() as stack:
            # Entered on the stack so that it is closed even if the deadline passes right then.
            entering = stack.enter_async_context(opened)
            response = await self._within(request, entering, within)
            if not is_success(response):
                raise response_error(
                    request, response, await self._within(request, response.body(), within)
                )
            yield response

    def _headers(self) -> dict[str, str]:
        # The server uses the user agent as field manager where a request cannot name one.
        return {"accept": JSON, "user-agent": self.manager}

    async def _exchange(self, request: Request) -> bytes:
        async with self._transport.open(request) as response:
            body = await response.body()
            if not is_success(response):
                raise response_error(request, response, body)
            return body

    async def _within(self, request: Request, awaitable: Awaitable[T], within: float) -> T:
        try:
            return await bounded(awaitable, seconds=within, clock=self._clock)
        except TimeoutError as error:
            why = f"no complete response from {self._transport} within {within:g} s"
            raise TimedOut(
                describe_request(request), f"{why}; check the server and the network"
            ) from error
