"""A transport to the server without sockets, which works on the virtual loop."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from libs.kube.errors import Unavailable
from libs.kube.requests import Request, Response
from libs.runtime.clock import Clock
from libs.testing.apiserver.requests.replies import Reply
from libs.testing.apiserver.storage.watches import ConnectionCut

Handler = Callable[[Request], Awaitable[Reply]]


class InProcessTransport:
    def __init__(self, handle: Handler, *, clock: Clock) -> None:
        self._handle = handle
        self._clock = clock

    def __str__(self) -> str:
        return "the simulated server"

    def open(self, request: Request) -> AbstractAsyncContextManager[Response]:
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: Request) -> AsyncGenerator[Response]:
        await self._clock.sleep(0)  # other tasks run, as while a request travels
        try:
            reply = await self._handle(request)
        except ConnectionCut as error:
            raise _cut(request) from error
        try:
            yield _Response(request, reply)
        finally:
            await reply.close()


class _Response:
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
    return Unavailable(tried, "the connection was cut; the request may have been executed")
