"""A small HTTP server for probes and metrics, which no client can keep busy.

Each connection carries one request, and ends with the response or after a few seconds. When there
are too many, the oldest ends. So neither idle connections nor clients that never read their
responses use memory or delay other requests.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

import msgspec

from libs.runtime.clock import Clock
from libs.runtime.fatal import fatal
from libs.runtime.logs import logger
from libs.runtime.service import Service
from libs.runtime.values import Port

TEXT: Final = "text/plain; charset=utf-8"
MAX_CONNECTIONS: Final = 64
MAX_HEAD: Final = 16 << 10
"""The most bytes of a request that are read."""
CONNECTION_SECONDS: Final = 10.0
"""How long a connection may last."""
LINGER_SECONDS: Final = 1.0
"""How long a client may take to close its side after the response."""
CACHE_SECONDS: Final = 1.0

_log = logger()


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens; port 0 takes a free one."""

    host: str = "0.0.0.0"
    port: Port = 8080


class Page(msgspec.Struct, frozen=True):
    """A response."""

    body: bytes
    status: int = 200
    content_type: str = TEXT


class CachedPage:
    """Render a page at most once in `CACHE_SECONDS`, however often it is requested."""

    def __init__(self, render: Callable[[], Page], clock: Clock) -> None:
        self._render = render
        self._clock = clock
        self._page: Page | None = None
        self._rendered_at = 0.0

    def __call__(self) -> Page:
        now = self._clock.monotonic()
        if self._page is None or now - self._rendered_at >= CACHE_SECONDS:
            self._page, self._rendered_at = self._render(), now
        return self._page


class HttpServer:
    """Serve GET and HEAD of each path while entered; `address` is then where it listens."""

    def __init__(self, settings: HttpSettings, pages: Mapping[str, Callable[[], Page]]) -> None:
        self._settings = settings
        self._pages = pages
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        """Open connections, oldest first."""
        self._server: asyncio.Server | None = None
        self.address = (settings.host, settings.port)

    async def __aenter__(self) -> Self:
        host, port = self._settings.host, self._settings.port
        try:
            self._server = await asyncio.start_server(self._accept, host, port, limit=MAX_HEAD)
        except (OSError, UnicodeError) as error:
            # asyncio's own text repeats the address; a host that does not resolve has no errno.
            number = error.errno if isinstance(error, OSError) else None
            reason = os.strerror(number) if number and number > 0 else str(error)
            raise fatal(
                f"HTTP cannot listen on {host}:{port}: {reason}; choose another host or port"
            ) from error
        bound = self._server.sockets[0].getsockname()
        self.address = (str(bound[0]), int(bound[1]))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        if self._connections:
            await asyncio.wait(self._connections.values(), timeout=LINGER_SECONDS)
        tasks = [*self._connections.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            oldest = next(iter(self._connections))
            self._connections.pop(oldest).cancel()
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections[writer] = task
        task.add_done_callback(lambda _: self._ended(writer))

    def _ended(self, writer: asyncio.StreamWriter) -> None:
        # A task that is cancelled before its first step runs none of its code: the socket would
        # stay open until the process ends, in CLOSE-WAIT once the client has gone.
        writer.transport.abort()
        self._connections.pop(writer, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(CONNECTION_SECONDS):
                writer.write(await self._respond(reader))
                await writer.drain()
                # An unread byte would make the close a reset, and the client lose the response.
                writer.write_eof()
                async with asyncio.timeout(LINGER_SECONDS):
                    while await reader.read(MAX_HEAD):
                        pass
        except (TimeoutError, OSError):
            pass
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def _respond(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _encode(_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        except asyncio.IncompleteReadError:
            return b""
        match head.split(b"\r\n", 1)[0].split(b" "):
            case [method, target, b"HTTP/1.0" | b"HTTP/1.1"]:
                render = self._pages.get(target.split(b"?", 1)[0].decode("latin-1"))
            case _:
                return _encode(_error(HTTPStatus.BAD_REQUEST))
        if method not in (b"GET", b"HEAD"):
            return _encode(_error(HTTPStatus.METHOD_NOT_ALLOWED))
        if render is None:
            return _encode(_error(HTTPStatus.NOT_FOUND))
        try:
            page = render()
        except Exception:  # noqa: BLE001  (whatever it is, the next request is served)
            _log.exception("page not rendered", target=target.decode("latin-1"))
            page = _error(HTTPStatus.INTERNAL_SERVER_ERROR)
        return _encode(page, with_body=method == b"GET")


def _error(status: HTTPStatus) -> Page:
    return Page(f"{status.value} {status.phrase}\n".encode(), status=status)


def _encode(page: Page, *, with_body: bool = True) -> bytes:
    try:
        phrase = HTTPStatus(page.status).phrase
    except ValueError:
        phrase = ""
    allow = "Allow: GET, HEAD\r\n" if page.status == HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {page.status} {phrase}\r\nContent-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n{allow}Connection: close\r\n\r\n"
    )
    return head.encode() + (page.body if with_body else b"")


async def serve_pages(
    service: Service, name: str, settings: HttpSettings, pages: Mapping[str, Callable[[], Page]]
) -> None:
    """Serve pages until the service ends; the log tells where."""
    host, port = (await service.enter(name, HttpServer(settings, pages))).address
    _log.info(f"{name} started", host=host, port=port)
