"""The page of a machine's GPUs, at one port for as long as the machine is on.

Telemetry's agents come and go, and each shows its own. Must not know what a page says.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from libs.runtime.http import HttpServer, HttpSettings, Page
from libs.testing.ports import HOST

_PATHS: Final = ("/", "/metrics", "/health")
_NOBODY: Final = Page(b"no telemetry agent runs on this machine now; ask again\n", status=503)

Pages = Mapping[str, Callable[[], Page]]


class GpuExporter:
    """What the agent that lives now shows; `server` is for whoever gives it a port."""

    def __init__(self) -> None:
        self._pages: Pages = {}
        pages = {path: partial(self._page, path) for path in _PATHS}
        self.server = HttpServer(HttpSettings(host=HOST, port=0), pages)

    @asynccontextmanager
    async def serve(self, pages: Pages) -> AsyncGenerator[None]:
        """Of this agent, while it lives."""
        self._pages = pages
        try:
            yield
        finally:
            if self._pages is pages:
                self._pages = {}

    def _page(self, path: str) -> Page:
        shown = self._pages.get(path)
        return shown() if shown is not None else _NOBODY
