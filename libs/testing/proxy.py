"""A loopback TCP proxy with faults at will, to stand between a client and a real server.

It delays, holds back, swallows, refuses, and cuts in the middle of a message, while its own port
stays the same. Must know nothing of the protocol that it carries.
"""

import asyncio
import contextlib
import socket
from types import TracebackType
from typing import Self

from libs.testing.errors import SimError
from libs.testing.ports import HOST, ReservedPort
from libs.testing.proxy_connection import Direction, ProxyConnection, ProxyFaults


class Proxy:
    """Faults hold for the connections that are there and for later ones, until `restore()`."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._faults = ProxyFaults()
        self._links: dict[asyncio.Task[None], ProxyConnection] = {}
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
            if self._links:
                await asyncio.wait(self._links)
        finally:
            if self._port is not None:
                self._port.release()

    @property
    def port(self) -> int:
        """Its own, for as long as the block lasts."""
        if self._port is None:
            raise SimError("this proxy has no port yet: enter its `async with` first")
        return self._port.number

    @property
    def url(self) -> str:
        """Where clients connect, as those of NATS write it."""
        return f"nats://{HOST}:{self.port}"

    @property
    def connections(self) -> int:
        """How many it holds now, silent ones included."""
        return len(self._links)

    def delay(self, seconds: float, *, way: Direction | None = None) -> None:
        """Bytes that come from now on are so late; their order and the throughput stay."""
        for lane in self._faults.directions(way):
            lane.delay = seconds

    def pause(self, *, way: Direction | None = None) -> None:
        """Hold bytes back, and the end of the stream with them; senders feel it after a while."""
        for lane in self._faults.directions(way):
            lane.gate.clear()

    def resume(self, *, way: Direction | None = None) -> None:
        """Let go of what is held back."""
        for lane in self._faults.directions(way):
            lane.gate.set()

    def drop(self) -> None:
        """Be a black hole: connections open and stay open, and nothing passes, not even their end.

        A connection that lost something stays silent until it is cut, also after `restore()`.
        """
        self._faults.dropping = True

    def cut_after(self, count: int, *, way: Direction) -> None:
        """Let so many more bytes pass that way, then cut the connection that brought the last."""
        for lane in self._faults.directions(way):
            lane.left = count

    def cut(self, *, reset: bool = False) -> None:
        """End all connections, by FIN or by RST; what is under way is lost."""
        for task, link in self._links.items():
            if reset:
                link.reset_at_end()
            task.cancel()

    def refuse(self) -> None:
        """Refuse new connections; those that are there stay."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def restore(self) -> None:
        """No faults any more."""
        self._faults.dropping = False
        for lane in self._faults.directions(None):
            lane.delay, lane.left = 0.0, None
            lane.gate.set()
        if self._listener is None:
            self._listen()

    # By hand, because asyncio's own server can neither begin nor end within one step of the loop.

    def _listen(self) -> None:
        listener = socket.create_server((HOST, self.port))
        listener.setblocking(False)
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)
        self._listener = listener

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            client, _ = listener.accept()
            client.setblocking(False)
            link = ProxyConnection(client=client, upstream=self._upstream, faults=self._faults)
            task = asyncio.create_task(link.run(), name=f"a link of the proxy at {self.port}")
            self._links[task] = link
            task.add_done_callback(self._links.pop)
            task.add_done_callback(lambda _: link.close())
