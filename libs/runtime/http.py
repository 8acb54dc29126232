"""An aiohttp server for pages whose text is rendered at each request."""

import os
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

import msgspec
from aiohttp import web

from libs.runtime.fatal import fatal
from libs.runtime.values import Port

TEXT = "text/plain; charset=utf-8"
SHUTDOWN_SECONDS = 1.0
"""How long requests in progress may take when the server closes, the last step of a process."""


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens; port 0 takes a free one."""

    host: str = "0.0.0.0"
    port: Port = 8080


class Page(msgspec.Struct, frozen=True):
    """A response."""

    body: bytes
    status: int = 200
    content_type: str = TEXT


class HttpServer:
    """Serve GET and HEAD of each path while entered; `address` is then where it listens."""

    def __init__(self, settings: HttpSettings, pages: Mapping[str, Callable[[], Page]]) -> None:
        self._settings = settings
        application = web.Application()
        for path, render in pages.items():
            application.router.add_get(path, _handler(render))
        self._runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS
        )
        self.address = (settings.host, settings.port)

    async def __aenter__(self) -> Self:
        host, port = self._settings.host, self._settings.port
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except (OSError, UnicodeError) as error:
            await self._runner.cleanup()
            # asyncio's own text repeats the address; a host that does not resolve has no errno.
            number = error.errno if isinstance(error, OSError) else None
            reason = os.strerror(number) if number and number > 0 else str(error)
            raise fatal(
                f"HTTP cannot listen on {host}:{port}: {reason}; choose another host or port"
            ) from error
        bound = self._runner.addresses[0]
        self.address = (str(bound[0]), int(bound[1]))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()


def _handler(render: Callable[[], Page]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def respond(_request: web.Request) -> web.Response:
        page = render()
        return web.Response(
            body=page.body, status=page.status, headers={"Content-Type": page.content_type}
        )

    return respond
