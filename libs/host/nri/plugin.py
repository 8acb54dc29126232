"""The plugin of NRI on a machine: it is connected whenever the container runtime is there.

While it is not, the runtime creates containers without asking: they start without the devices that
annotations name. So it connects again at once. protobuf takes memory: it is loaded when the socket
is there.
"""

import asyncio
from contextlib import suppress
from typing import Final

from libs.host.machine import Offload
from libs.host.nri.port import Injector, NriUnavailable
from libs.host.tree import Tree
from libs.runtime.clock import Clock
from libs.runtime.logs import logger

SOCKET: Final = "/var/run/nri/nri.sock"
CHECK_EVERY: Final = 1.0
"""Seconds between two attempts to connect."""
RETRY: Final = 0.1
"""The same, after a connection was lost."""
HURRY: Final = 30.0
"""Seconds after a loss until `CHECK_EVERY` applies again."""
_ABSENT: Final = (
    "NRI is disabled in the configuration of the container runtime, as it is by default in"
    " containerd 1.7, or the runtime is not running"
)

_log = logger()


class NriPlugin:
    def __init__(
        self,
        injector: Injector,
        *,
        tree: Tree,
        offload: Offload,
        clock: Clock,
        socket: str = SOCKET,
    ) -> None:
        self._injector = injector
        self._tree = tree
        self._offload = offload
        self._clock = clock
        self._socket = socket
        self._lost_at: float | None = None
        self.problem = "the container runtime has not registered the plugin of NRI yet"
        """Why the runtime does not ask the plugin; empty if it does."""

    async def run(self) -> None:
        while True:
            try:
                await self._serve()
            except NriUnavailable as error:
                self._set_problem(str(error))
            await self._clock.sleep(self._pause())

    def _pause(self) -> float:
        lost_at = self._lost_at
        is_recent = lost_at is not None and self._clock.monotonic() < lost_at + HURRY
        return RETRY if is_recent else CHECK_EVERY

    async def _serve(self) -> None:
        reader, writer = await self._connect()
        try:
            from libs.host.nri.session import Session

            await Session(reader, writer, self._injector).run(lambda: self._set_problem(""))
        finally:
            if not self.problem:
                self._lost_at = self._clock.monotonic()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            path = await self._offload.run(lambda: self._tree.real_path(self._socket))
            if path is None:
                raise NriUnavailable(f"there is no socket {self._socket}: {_ABSENT}")
            return await asyncio.open_unix_connection(path)
        except OSError as error:
            why = error.strerror or error
            raise NriUnavailable(
                f"the container runtime does not accept connections at {self._socket} ({why}):"
                f" {_ABSENT}"
            ) from None

    def _set_problem(self, problem: str) -> None:
        if problem and problem != self.problem:
            _log.warning("containers get no devices by annotation", problem=problem)
        self.problem = problem
