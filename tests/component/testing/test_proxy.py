"""Faults of the proxy, seen from both ends of a connection, and with a real nats-server."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from libs.testing.errors import SimError
from libs.testing.nats import NatsServer
from libs.testing.proxy import Proxy
from tests.component.testing.raw_nats import WITHIN, RawNatsClient, raw_nats_client, refused
from tests.support import eventually


class Upstream:
    """A server whose side of each connection a test can use."""

    def __init__(self) -> None:
        self.port = 0
        self.accepted: asyncio.Queue[RawNatsClient] = asyncio.Queue()
        self._connections: list[RawNatsClient] = []

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = RawNatsClient(reader, writer)
        self._connections.append(connection)
        self.accepted.put_nowait(connection)

    def close(self) -> None:
        for connection in self._connections:
            connection.abort()


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    accepting = Upstream()
    server = await asyncio.start_server(accepting.accept, "127.0.0.1", 0)
    accepting.port = server.sockets[0].getsockname()[1]
    yield accepting
    server.close()
    accepting.close()
    await server.wait_closed()


@pytest.fixture
async def proxy(upstream: Upstream) -> AsyncIterator[Proxy]:
    async with Proxy("127.0.0.1", upstream.port) as running:
        yield running


@asynccontextmanager
async def both_ends(
    proxy: Proxy, upstream: Upstream
) -> AsyncGenerator[tuple[RawNatsClient, RawNatsClient]]:
    """Yield both ends of a connection through the proxy: the client's and the server's."""
    async with raw_nats_client(proxy.port) as client:
        async with asyncio.timeout(WITHIN):
            yield client, await upstream.accepted.get()


async def test_the_proxy_carries_both_directions_and_half_closed_connections(
    proxy: Proxy, upstream: Upstream
) -> None:
    async with both_ends(proxy, upstream) as (client, server):
        client.send("question\n")
        client.writer.write_eof()
        assert await server.reader.read() == b"question\n"
        # The client has closed its sending side only.
        server.send("answer\n")
        server.writer.write_eof()
        assert await client.reader.read() == b"answer\n"
        await eventually(lambda: proxy.connections == 0)


async def test_traffic_can_be_paused_and_resumed(proxy: Proxy, upstream: Upstream) -> None:
    async with both_ends(proxy, upstream) as (client, server):
        proxy.pause(way="up")
        client.send("held\n")
        server.send("free\n")
        assert await client.line() == "free"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await server.reader.readline()
        proxy.resume()
        assert await server.line() == "held"


async def test_a_black_hole_drops_data_silently(proxy: Proxy, upstream: Upstream) -> None:
    async with both_ends(proxy, upstream) as (client, server):
        proxy.drop()
        client.send("lost\n")
        server.send("lost\n")
        client.abort()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await server.reader.read()
        assert proxy.connections == 1  # the server's side is still open


async def test_a_cut_ends_both_sides(proxy: Proxy, upstream: Upstream) -> None:
    async with both_ends(proxy, upstream) as (client, server):
        proxy.cut()
        assert await client.reader.read() == b""
        assert await server.reader.read() == b""
        await eventually(lambda: proxy.connections == 0)
    async with both_ends(proxy, upstream) as (client, server):
        client.send("later\n")
        assert await server.line() == "later"


async def test_a_reset_is_an_error_on_both_sides(proxy: Proxy, upstream: Upstream) -> None:
    async with both_ends(proxy, upstream) as (client, server):
        proxy.cut(reset=True)
        with pytest.raises(ConnectionResetError):
            await client.reader.read()
        with pytest.raises(ConnectionResetError):
            await server.reader.read()


async def test_connections_can_be_refused_and_accepted_again(
    proxy: Proxy, upstream: Upstream
) -> None:
    port = proxy.port
    async with both_ends(proxy, upstream) as (client, server):
        proxy.refuse()
        assert await refused(port)
        client.send("still there\n")
        assert await server.line() == "still there"
    proxy.restore()
    assert proxy.port == port
    async with both_ends(proxy, upstream) as (client, server):
        client.send("again\n")
        assert await server.line() == "again"


async def test_restore_lifts_every_fault(proxy: Proxy, upstream: Upstream) -> None:
    proxy.pause()
    proxy.drop()
    proxy.cut_after(0, way="up")
    proxy.refuse()
    proxy.restore()
    async with both_ends(proxy, upstream) as (client, server):
        client.send("up\n")
        assert await server.line() == "up"
        server.send("down\n")
        assert await client.line() == "down"


async def test_a_closed_proxy_leaves_no_task_and_no_connection(upstream: Upstream) -> None:
    async with Proxy("127.0.0.1", upstream.port) as proxy:
        port = proxy.port
        async with both_ends(proxy, upstream) as (client, _):
            pass
        proxy.pause()
        async with both_ends(proxy, upstream) as (client, _):
            client.send("held\n")
    assert await refused(port)
    assert proxy.connections == 0
    with pytest.raises(SimError, match="enter its `async with` first"):
        _ = Proxy("127.0.0.1", 1).port


async def test_a_nats_connection_is_cut_in_the_middle_of_a_message() -> None:
    async with NatsServer() as server, Proxy("127.0.0.1", server.port) as proxy:
        assert proxy.url == f"nats://127.0.0.1:{proxy.port}"
        async with (
            raw_nats_client(proxy.port) as subscriber,
            raw_nats_client(server.port) as publisher,
        ):
            assert await subscriber.handshake() == "PONG"
            assert await publisher.handshake() == "PONG"
            subscriber.send("SUB a 1\r\nPING\r\n")
            assert await subscriber.line() == "PONG"
            proxy.cut_after(20, way="down")
            publisher.send("PUB a 10\r\n0123456789\r\nPUB a 10\r\n0123456789\r\n")
            assert await subscriber.reader.read() == b"MSG a 1 10\r\n01234567"
