"""One connection through the proxy: the client's half, the server's half, and the faults between.

Knows nothing of listening or of other connections; `libs.testing.proxy` has those.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["up", "down"]
"""Up to the server, or down to the client."""

_CHUNK = 65_536
_CHUNKS_HELD = 16


def _open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


@dataclass
class DirectionFaults:
    """What happens now to bytes that go one way, on all connections."""

    delay: float = 0.0
    gate: asyncio.Event = field(default_factory=_open_gate)
    left: int | None = None
    """So many bytes may pass yet."""

    def take_allowed(self, data: bytes) -> bytes:
        """The part of it that may pass."""
        if self.left is None:
            return data
        passed = data[: self.left]
        self.left -= len(passed)
        return passed


@dataclass
class ProxyFaults:
    """What happens now to all connections."""

    up: DirectionFaults = field(default_factory=DirectionFaults)
    down: DirectionFaults = field(default_factory=DirectionFaults)
    dropping: bool = False

    def directions(self, way: Direction | None) -> Iterator[DirectionFaults]:
        """One of them, or both."""
        if way != "down":
            yield self.up
        if way != "up":
            yield self.down


@dataclass(frozen=True)
class ProxySocket:
    """A socket to one of the two that talk."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def __post_init__(self) -> None:
        # Draining means: all of it is with the kernel. So a cut loses what it shall lose, no more.
        self.writer.transport.set_write_buffer_limits(high=0)

    async def closed(self) -> None:
        """After `abort`: the socket is given back."""
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


_Parcel = tuple[float, bytes | OSError]
"""When it is due, and what; no bytes are the end of the stream, an error is a broken one."""


class ProxyConnection:
    """It lasts until both sides have ended their streams, one of them broke, or it is cancelled."""

    def __init__(
        self, *, client: socket.socket, upstream: tuple[str, int], faults: ProxyFaults
    ) -> None:
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        server.setblocking(False)
        self._sockets = (client, server)
        self._halves: list[ProxySocket] = []
        self._upstream = upstream
        self._faults = faults
        self._dead = False

    def reset_at_end(self) -> None:
        """Both sides get an error instead of an end, and lose what was not delivered."""
        for each in self._sockets:
            with contextlib.suppress(OSError):  # it has ended already
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def close(self) -> None:
        """After `carry`, also where that was cancelled before its first step."""
        for each in self._sockets:
            each.close()

    async def run(self) -> None:
        """Everything that comes, both ways."""
        try:
            client = await self._half(self._sockets[0])
            if self._faults.dropping:
                await self._swallow(client)
            else:
                loop = asyncio.get_running_loop()
                await loop.sock_connect(self._sockets[1], self._upstream)
                await self._exchange(client, await self._half(self._sockets[1]))
        except* OSError:
            pass  # a broken half breaks the other; here it ends like any other
        finally:
            for half in self._halves:
                half.writer.transport.abort()
            for half in self._halves:
                await half.closed()

    async def _half(self, connected: socket.socket) -> ProxySocket:
        half = ProxySocket(*await asyncio.open_connection(sock=connected))
        self._halves.append(half)
        return half

    async def _swallow(self, client: ProxySocket) -> None:
        """The server never hears of this one."""
        while await client.reader.read(_CHUNK):
            pass

    async def _exchange(self, client: ProxySocket, server: ProxySocket) -> None:
        async with asyncio.TaskGroup() as group:
            for source, sink, lane in (
                (client, server, self._faults.up),
                (server, client, self._faults.down),
            ):
                held: asyncio.Queue[_Parcel] = asyncio.Queue(_CHUNKS_HELD)
                group.create_task(self._take(source, held, lane))
                group.create_task(self._give(held, sink, lane))

    async def _take(
        self, source: ProxySocket, held: asyncio.Queue[_Parcel], lane: DirectionFaults
    ) -> None:
        loop = asyncio.get_running_loop()
        what: bytes | OSError = b"?"
        while what and isinstance(what, bytes):
            try:
                what = await source.reader.read(_CHUNK)
            except OSError as error:
                what = error
            await held.put((loop.time() + lane.delay, what))

    async def _give(
        self, held: asyncio.Queue[_Parcel], sink: ProxySocket, lane: DirectionFaults
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, what = await held.get()
            await asyncio.sleep(due - loop.time())
            await lane.gate.wait()
            if self._faults.dropping or self._dead:
                # A stream with a hole in it must not go on: the rest is swallowed too, for good.
                self._dead = True
            elif isinstance(what, OSError):
                raise what
            elif not what:
                sink.writer.write_eof()
                return
            else:
                passed = lane.take_allowed(what)
                sink.writer.write(passed)
                await sink.writer.drain()
                if lane.left == 0:
                    lane.left = None
                    raise ConnectionAbortedError("cut in the middle, as asked")
