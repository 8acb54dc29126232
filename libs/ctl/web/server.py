"""Serve the page: its files, a stream of changes (server-sent events), and a node's story.

Nothing can be written. A request must name this server as a browser on the right page would: the
Host header is checked, so that a foreign page whose name is pointed at this address cannot read.
"""

import asyncio
import ipaddress
import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Final, cast
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from libs.ctl.failures import ExitCode, Failure
from libs.ctl.text import printable
from libs.runtime.fatal import describe_error, raised_at

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src"
        " 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
MOST_STREAMS: Final = 64
"""Of one more, the oldest ends: its browser connects again by itself."""
WRITE_SECONDS: Final = 30.0
"""How long a reader may take for what was pushed."""
PUSH_SECONDS: Final = 0.5
"""Changes are collected for this long before they are pushed."""
BEAT_SECONDS: Final = 5.0
"""The ages of the sources are pushed at least this often."""
_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
EVERY_ADDRESS: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""What listens on all addresses of a machine, and the one that its own browsers may use."""
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

Push = Callable[[int], tuple[int, bytes]]
"""Returns the present revision, and what changed since another, as JSON in one line."""
Tell = Callable[[str], Awaitable[bytes]]
"""Returns the story of a node as JSON."""
OnChange = Callable[[Callable[[], None]], Callable[[], None]]


class PageServer:
    """The handlers of all paths."""

    def __init__(
        self, *, push: Push, tell: Tell, on_change: OnChange, hosts: frozenset[str]
    ) -> None:
        self._push = push
        self._tell = tell
        self._on_change = on_change
        self._hosts = _LOOPBACK | {each.lower() for each in hosts}
        self._streams: dict[asyncio.Task[None], web.Request] = {}
        """Oldest first."""
        self._closing = asyncio.Event()
        self._files = _page_files()

    @property
    def streams(self) -> int:
        """How many pages are told of changes."""
        return len(self._streams)

    def application(self) -> web.Application:
        """Return the application: the page's files, its answers as JSON, and whether it lives."""
        app = web.Application(middlewares=[self._guard], client_max_size=0)
        for path in self._files:
            app.router.add_get(path, self._file)
        app.router.add_get("/api/changes", self._changes)
        app.router.add_get("/api/node", self._node)
        app.router.add_get("/livez", self._alive)
        app.on_response_prepare.append(_add_headers)
        app.on_shutdown.append(self._close)
        return app

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse what is not for this server, or would write, before any handler sees it."""
        host = _host_name(request.headers.get("Host", ""))
        if host not in self._hosts:
            return _text(
                421,
                f"this server does not answer for the host {host!r}; if it is yours, start `sluice"
                " web` with --allow-host",
            )
        if request.method not in ("GET", "HEAD"):
            return _text(405, "nothing can be written here: only GET and HEAD")
        if request.headers.get("Sec-Fetch-Site") == "cross-site" and request.path != "/":
            return _text(403, "another site's page may not read this")
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _text(error.status, error.reason)

    async def _file(self, request: web.Request) -> web.Response:
        body, content_type = self._files[request.path]
        return web.Response(body=body, content_type=content_type, charset="utf-8")

    async def _alive(self, _request: web.Request) -> web.Response:
        return _text(200, "ok")

    async def _node(self, request: web.Request) -> web.Response:
        try:
            story = await self._tell(request.query.get("name", ""))
        except Failure as failure:
            status = 404 if failure.code is ExitCode.NOT_FOUND else 502
            return _text(status, printable(str(failure)))
        return web.Response(body=story, content_type="application/json")

    async def _changes(self, request: web.Request) -> web.StreamResponse:
        """Push changes until the reader leaves, is too slow, or makes room for another.

        A slow reader ends, as what is written for it would pile up in memory.
        """
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        if len(self._streams) >= MOST_STREAMS:
            self._end_oldest()
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._streams[task] = request
        changed = asyncio.Event()
        stop = self._on_change(changed.set)
        try:
            revision = 0
            while not self._closing.is_set():
                changed.clear()
                revision, data = self._push(revision)
                async with asyncio.timeout(WRITE_SECONDS):
                    await response.write(b"data: %b\n\n" % data)
                await self._wait(PUSH_SECONDS, self._closing)
                await self._wait(BEAT_SECONDS - PUSH_SECONDS, changed)
        except ConnectionError:
            pass  # the page was closed
        except TimeoutError:
            _abort(request)
        finally:
            stop()
            self._streams.pop(task, None)
        return response

    def _end_oldest(self) -> None:
        """End a stream at once: readers that read nothing would keep all others out."""
        task = next(iter(self._streams))
        _abort(self._streams.pop(task))
        task.cancel()

    async def _wait(self, seconds: float, event: asyncio.Event) -> None:
        if not self._closing.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await event.wait()
            except TimeoutError:
                pass

    async def _close(self, _app: web.Application) -> None:
        self._closing.set()
        for task in self._streams:
            task.cancel()


@asynccontextmanager
async def serve(server: PageServer, host: str, port: int) -> AsyncGenerator[str]:
    """Listen while entered; yield the address."""
    runner = web.AppRunner(
        server.application(), access_log=None, logger=_errors(), shutdown_timeout=1.0
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "this cannot be a host name"
            raise Failure(
                ExitCode.NOT_REACHABLE,
                f"cannot listen on {host}:{port}: {why}; choose another with --host and --port",
            ) from error
        yield _address(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


def _abort(request: web.Request) -> None:
    """Close a connection without waiting for a reader."""
    if request.transport is not None:
        request.transport.abort()


def _address(host: str, port: int) -> str:
    """Return an address at which this machine's browsers are answered."""
    name = EVERY_ADDRESS.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address to listen on."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _errors() -> logging.Logger:
    """Return what logs errors of requests: a line for each, and none for what is not HTTP."""
    logger = logging.getLogger(__name__)
    if not logger.handlers:
        logger.addHandler(_OneLine())
        logger.propagate = False
    return logger


class _OneLine(logging.Handler):
    """Tell what went wrong in a line, as other failures of the command are."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, HttpProcessingError):
            problem = f"a request was not answered: {describe_error(error)} (at {raised_at(error)})"
            print(f"sluice: {printable(problem)}; please report it", file=sys.stderr, flush=True)


def _page_files() -> dict[str, tuple[bytes, str]]:
    """Return the page's files and their types by path. They are beside this module."""
    found = {
        f"/{each.name}": (each.read_bytes(), _TYPES[f".{each.name.rpartition('.')[2]}"])
        for each in files("libs.ctl.web").joinpath("page").iterdir()
        if f".{each.name.rpartition('.')[2]}" in _TYPES
    }
    return {"/": found.pop("/index.html"), **found}


def _host_name(header: str) -> str:
    """Return the name of a Host header without its port; empty if it is malformed."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def _text(status: int, text: str) -> web.Response:
    headers = {"Allow": "GET, HEAD"} if status == 405 else None
    return web.Response(status=status, text=f"{text}\n", headers=headers)


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
