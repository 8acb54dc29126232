"""The driver at its kubelet: served as long as its sockets are there, and again if they vanish.

A kubelet that starts asks each socket in its folder of registrations, so a driver that runs on is
known to it again without its own doing.
"""

import asyncio
import os
from typing import TYPE_CHECKING, Final, Self

from libs.host.dra.port import Claims
from libs.host.machine import Offload
from libs.runtime.clock import Clock
from libs.runtime.logs import logger

if TYPE_CHECKING:
    from libs.host.dra.server import DraServer

CHECK_EVERY: Final = 1.0
"""Seconds between two looks at the sockets."""
SOCKET: Final = "dra.sock"

_log = logger()


class DraHost:
    """`plugins` and `registry` are the kubelet's folders in this process."""

    def __init__(
        self,
        driver: str,
        *,
        plugins: str,
        registry: str,
        kubelet_plugins: str,
        claims: Claims,
        offload: Offload,
        clock: Clock,
    ) -> None:
        """`kubelet_plugins` is the folder `plugins` as the kubelet names it."""
        self._driver = driver
        self._folder = f"{plugins}/{driver}"
        self._sockets = (f"{self._folder}/{SOCKET}", f"{registry}/{driver}-reg.sock")
        self._endpoint = f"{kubelet_plugins}/{driver}/{SOCKET}"
        self._claims = claims
        self._offload = offload
        self._clock = clock
        self._server: DraServer | None = None
        self._lock = asyncio.Lock()
        self._failure = ""

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet has accepted the driver."""
        return self._server is not None and self._server.is_registered

    @property
    def problem(self) -> str:
        """Why the kubelet does not know the driver; empty if it does."""
        if self._failure or self.is_registered:
            return self._failure
        refusal = "" if self._server is None else self._server.refusal
        return refusal or f"the kubelet has not asked on {self._sockets[1]} yet"

    async def run(self) -> None:
        while True:
            await self.check()
            await self._clock.sleep(CHECK_EVERY)

    async def check(self) -> None:
        """Serve if nothing is served; the reason of a failure is in `problem`."""
        async with self._lock:
            try:
                await self._check()
            except OSError as error:
                await self._stop()
                self._set_failure(str(error))
            else:
                self._set_failure("")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        """Stop serving; the kubelet withdraws the driver's slices if it does not come back."""
        async with self._lock:
            await self._stop()

    async def _check(self) -> None:
        are_there = await self._offload.run(lambda: all(map(os.path.exists, self._sockets)))
        if self._server is not None and are_there:
            return
        await self._stop()
        # The library writes what it tries to standard error, beside what it raises.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from libs.host.dra.server import DraServer

        socket, registration = self._sockets
        await self._offload.run(lambda: os.makedirs(self._folder, mode=0o750, exist_ok=True))
        self._server = DraServer(
            self._driver,
            socket=socket,
            registration=registration,
            endpoint=self._endpoint,
            claims=self._claims,
        )
        await self._server.start()

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    def _set_failure(self, failure: str) -> None:
        if failure and failure != self._failure:
            _log.warning("the kubelet cannot know this driver", problem=failure)
        self._failure = failure
