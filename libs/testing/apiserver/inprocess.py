"""A client's way into the server without sockets; works on the virtual loop."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from libs.kube.errors import Unavailable
from libs.kube.transport import Request, Response
from libs.runtime.clock import Clock
from libs.testing.apiserver.requests.replies import Reply
from libs.testing.apiserver.storage.watches import ConnectionCut


class RequestServer(Protocol):
    """What answers."""

    async def answer(self, request: Request, *, user: str) -> Reply:
        """The reply to one request."""
        ...


class InProcessTransport:
    """A transport of one user."""

    def __init__(self, server: RequestServer, *, user: str, clock: Clock) -> None:
        self._server = server
        self._user = user
        self._clock = clock

    def __str__(self) -> str:
        return "the simulated server"

    def open(self, request: Request) -> AbstractAsyncContextManager[Response]:
        """Send it, and give the answer's head."""
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: Request) -> AsyncGenerator[Response]:
        await self._clock.sleep(0)  # others have a turn, as they have while bytes travel
        try:
            reply = await self._server.answer(request, user=self._user)
        except ConnectionCut as error:
            raise _cut(request) from error
        try:
            yield _Answer(request, reply)
        finally:
            await reply.close()


class _Answer:
    def __init__(self, request: Request, reply: Reply) -> None:
        self._request = request
        self._reply = reply

    @property
    def status(self) -> int:
        return self._reply.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._reply.headers

    async def body(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._reply.chunks():
                yield chunk
        except ConnectionCut as error:
            raise _cut(self._request) from error


def _cut(request: Request) -> Unavailable:
    tried = f"{request.method} {request.path}"
    return Unavailable(tried, "the connection was cut; it may have been carried out")
