"""What every operation of the client is made of: a request with a deadline, or a stream.

What fails is a typed error (`errors`). Nothing is tried again here: whoever calls knows whether a
second try is right.
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
"""Seconds for a request where the caller says nothing else."""

JSON = "application/json"


class BaseClient:
    """One API server, asked in the name of one field manager."""

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
        """The body of a good answer; a typed error otherwise, `TimedOut` after `within` seconds.

        What changes something tells the server the same deadline, so that it does not carry out
        late what we have given up.
        """
        asked = dict(query or {})
        if method != "GET":
            asked.setdefault("timeout", f"{within:.3f}s")
        request = Request(
            method=method,
            path=path,
            query=asked,
            headers=self._headers() | ({} if body is None else {"content-type": content_type}),
            body=b"" if body is None else msgspec.json.encode(body),
        )
        return await self._within(request, self._exchange(request), within)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], within: float = DEFAULT_TIMEOUT
    ) -> AsyncGenerator[Response]:
        """An answer that goes on until somebody ends it; `within` is for its head alone."""
        request = Request(method="GET", path=path, query=query, headers=self._headers())
        opened = self._transport.open(request)
        async with AsyncExitStack() as stack:
            # Entered on the stack, so that it is left also when the deadline comes right then.
            entering = stack.enter_async_context(opened)
            answer = await self._within(request, entering, within)
            if not is_success(answer):
                raise response_error(
                    request, answer, await self._within(request, answer.body(), within)
                )
            yield answer

    def _headers(self) -> dict[str, str]:
        # Where a request cannot name its field manager, the server takes this for it.
        return {"accept": JSON, "user-agent": self.manager}

    async def _exchange(self, request: Request) -> bytes:
        async with self._transport.open(request) as answer:
            body = await answer.body()
            if not is_success(answer):
                raise response_error(request, answer, body)
            return body

    async def _within(self, request: Request, awaitable: Awaitable[T], within: float) -> T:
        try:
            return await bounded(awaitable, seconds=within, clock=self._clock)
        except TimeoutError as error:
            why = f"no whole answer from {self._transport} within {within:g} s"
            raise TimedOut(
                describe_request(request), f"{why}; is the server well, and the way to it?"
            ) from error
