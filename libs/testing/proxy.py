"""A loopback TCP proxy that injects faults between a client and a real server.

It pauses, drops, refuses, and cuts connections in the middle of a message; its port stays the same.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

from libs.testing.child_process import HOST, ReservedPort
from libs.testing.errors import SimError

Direction = Literal["up", "down"]
"""Up to the server, or down to the client."""

_CHUNK = 65_536


@dataclass
class _DirectionFaults:
    """Current faults of bytes in one direction, on all connections."""

    resumed: asyncio.Event = field(default_factory=asyncio.Event)
    bytes_left: int | None = None
    """Bytes that may still pass before a cut."""

    def __post_init__(self) -> None:
        self.resumed.set()


@dataclass
class _Faults:
    """Current faults of all connections."""

    up: _DirectionFaults = field(default_factory=_DirectionFaults)
    down: _DirectionFaults = field(default_factory=_DirectionFaults)
    dropping: bool = False

    def directions(self, way: Direction | None) -> Iterator[_DirectionFaults]:
        if way != "down":
            yield self.up
        if way != "up":
            yield self.down


class Proxy:
    """Faults apply to existing and to later connections, until `restore()`."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._faults = _Faults()
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._port: ReservedPort | None = None
        self._listener: socket.socket | None = None

    async def __aenter__(self) -> Self:
        self._port = ReservedPort()
        self._listen()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.refuse()
        self.cut()
        try:
            if self._connections:
                await asyncio.wait(self._connections)
        finally:
            if self._port is not None:
                self._port.release()

    @property
    def port(self) -> int:
        if self._port is None:
            raise SimError("the proxy has no port yet: enter its `async with` first")
        return self._port.number

    @property
    def url(self) -> str:
        return f"nats://{HOST}:{self.port}"

    @property
    def connections(self) -> int:
        """Number of open connections, including silent ones."""
        return len(self._connections)

    def pause(self, *, way: Direction | None = None) -> None:
        """Hold back bytes and ends of streams; senders block once the buffers are full."""
        for direction in self._faults.directions(way):
            direction.resumed.clear()

    def resume(self, *, way: Direction | None = None) -> None:
        for direction in self._faults.directions(way):
            direction.resumed.set()

    def drop(self) -> None:
        """Drop all data: connections open and stay open, but nothing passes, not even their end.

        A connection that lost bytes stays silent until it is cut, also after `restore()`.
        """
        self._faults.dropping = True

    def cut_after(self, count: int, *, way: Direction) -> None:
        """Let this many more bytes pass, then cut the connection of the last byte."""
        for direction in self._faults.directions(way):
            direction.bytes_left = count

    def cut(self, *, reset: bool = False) -> None:
        """End all connections, by FIN or by RST; bytes under way are lost."""
        for task, connection in self._connections.items():
            if reset:
                connection.reset_at_end()
            task.cancel()

    def refuse(self) -> None:
        """Refuse new connections; existing ones stay."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def restore(self) -> None:
        """End all faults."""
        self._faults.dropping = False
        for direction in self._faults.directions(None):
            direction.bytes_left = None
            direction.resumed.set()
        if self._listener is None:
            self._listen()

    # A plain socket: asyncio's server can neither start nor stop within one step of the loop.

    def _listen(self) -> None:
        listener = socket.create_server((HOST, self.port))
        listener.setblocking(False)
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)
        self._listener = listener

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            client, _ = listener.accept()
            client.setblocking(False)
            connection = _Connection(client, upstream=self._upstream, faults=self._faults)
            name = f"connection of the proxy at {self.port}"
            task = asyncio.create_task(connection.run(), name=name)
            self._connections[task] = connection
            task.add_done_callback(self._connections.pop)
            task.add_done_callback(lambda _: connection.close())


_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Connection:
    """Lasts until both sides have ended their streams, one breaks, or the task is cancelled."""

    def __init__(
        self, client: socket.socket, *, upstream: tuple[str, int], faults: _Faults
    ) -> None:
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        server.setblocking(False)
        self._sockets = (client, server)
        self._writers: list[asyncio.StreamWriter] = []
        self._upstream = upstream
        self._faults = faults
        self._lost_bytes = False

    def reset_at_end(self) -> None:
        """Send RST instead of FIN, so that both sides get an error and lose undelivered bytes."""
        for each in self._sockets:
            with contextlib.suppress(OSError):  # closed already
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def close(self) -> None:
        """Close after `run`, even if it was cancelled before its first step."""
        for each in self._sockets:
            each.close()

    async def run(self) -> None:
        try:
            client = await self._open(self._sockets[0])
            if self._faults.dropping:
                while await client[0].read(_CHUNK):
                    pass
            else:
                await asyncio.get_running_loop().sock_connect(self._sockets[1], self._upstream)
                server = await self._open(self._sockets[1])
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._forward(client[0], server[1], self._faults.up))
                    group.create_task(self._forward(server[0], client[1], self._faults.down))
        except* OSError:
            pass  # a broken side breaks the other one below
        finally:
            for writer in self._writers:
                writer.transport.abort()
            for writer in self._writers:
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    async def _open(self, connected: socket.socket) -> _Stream:
        reader, writer = await asyncio.open_connection(sock=connected)
        # After a drain all bytes are with the kernel, so a cut loses exactly what it should.
        writer.transport.set_write_buffer_limits(high=0)
        self._writers.append(writer)
        return reader, writer

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        direction: _DirectionFaults,
    ) -> None:
        while True:
            data, broken = b"", None
            try:
                data = await reader.read(_CHUNK)
            except OSError as error:
                broken = error
            await direction.resumed.wait()
            if self._faults.dropping or self._lost_bytes:
                # A stream with a gap must not continue: drop the rest too, for good.
                self._lost_bytes = True
                if not data:
                    await asyncio.Event().wait()
            elif broken is not None:
                raise broken
            elif not data:
                writer.write_eof()
                return
            else:
                await self._write(writer, data, direction)

    async def _write(
        self, writer: asyncio.StreamWriter, data: bytes, direction: _DirectionFaults
    ) -> None:
        if direction.bytes_left is not None:
            data = data[: direction.bytes_left]
            direction.bytes_left -= len(data)
        writer.write(data)
        await writer.drain()
        if direction.bytes_left == 0:
            direction.bytes_left = None
            raise ConnectionAbortedError("cut in the middle of a message by the proxy")
