"""The in-process bus and a real server behind one interface for faults."""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol, TypeAlias

from libs.bus.nats.bus import connect
from libs.bus.port import Bus
from libs.contracts.identities import Identity
from libs.contracts.subjects import Stream
from libs.testing.bus import LocalServer
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env

MakeBus: TypeAlias = Callable[[Identity], Awaitable[Bus]]


class ServerControl(Protocol):
    """Faults of the server."""

    async def stop(self) -> None: ...

    async def start(self) -> None: ...

    async def lose(self, stream: Stream) -> None:
        """Restart the server without this stream."""
        ...


class BusServer(ServerControl, Protocol):
    """A server that can be connected to."""

    async def connect(self, identity: Identity) -> Bus: ...


class LocalBusServer:
    """The in-process bus, in real time and without faults."""

    def __init__(self) -> None:
        self._server = LocalServer(env=make_env())

    async def connect(self, identity: Identity) -> Bus:
        return self._server.connect(identity)

    async def stop(self) -> None:
        self._server.stop()

    async def start(self) -> None:
        self._server.start()

    async def lose(self, stream: Stream) -> None:
        self._server.stop()
        self._server.lose_stream(stream)
        self._server.start()


class NatsBusServer:
    """A real server, and connections that end with the test."""

    def __init__(self, *, server: NatsServer, connections: AsyncExitStack) -> None:
        self._server = server
        self._connections = connections
        self._random = random.Random(1)

    async def connect(self, identity: Identity) -> Bus:
        return await self._connections.enter_async_context(
            connect(
                url=self._server.url,
                identity=identity,
                env=make_env(random=self._random),
            )
        )

    async def stop(self) -> None:
        await self._server.stop()

    async def start(self) -> None:
        await self._server.start()

    async def lose(self, stream: Stream) -> None:
        await self._server.lose_stream(stream.name)


@asynccontextmanager
async def local() -> AsyncGenerator[BusServer]:
    yield LocalBusServer()


@asynccontextmanager
async def nats() -> AsyncGenerator[BusServer]:
    async with NatsServer() as server, AsyncExitStack() as connections:
        yield NatsBusServer(server=server, connections=connections)
