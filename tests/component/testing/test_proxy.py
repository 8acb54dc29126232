"""The proxy's faults, each seen from both ends of a connection, and on a real nats-server."""

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
        self._talks: list[RawNatsClient] = []

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called for each."""
        talk = RawNatsClient(reader, writer)
        self._talks.append(talk)
        self.accepted.put_nowait(talk)

    def leave(self) -> None:
        """Close all."""
        for talk in self._talks:
            talk.abort()


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    made = Upstream()
    server = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()
    made.leave()
    await server.wait_closed()


@pytest.fixture
async def proxy(upstream: Upstream) -> AsyncIterator[Proxy]:
    async with Proxy("127.0.0.1", upstream.port) as running:
        yield running


@asynccontextmanager
async def both_ends(
    proxy: Proxy, upstream: Upstream
) -> AsyncGenerator[tuple[RawNatsClient, RawNatsClient]]:
    """A connection through the proxy: the client's end, and the server's."""
    async with raw_nats_client(proxy.port) as client:
        async with asyncio.timeout(WITHIN):
            yield client, await upstream.accepted.get()


async def test_it_carries_both_ways_and_half_ends(proxy: Proxy, upstream: Upstream) -> None:
    async with both_ends(proxy, upstream) as (client, server):
        client.send("question\n")
        client.writer.write_eof()
        assert await server.reader.read() == b"question\n"
        # Its client has nothing more to say, and still listens.
        server.send("answer\n")
        server.writer.write_eof()
        assert await client.reader.read() == b"answer\n"
        await eventually(lambda: proxy.connections == 0)


async def test_it_carries_much(proxy: Proxy, upstream: Upstream) -> None:
    much = bytes(range(256)) * 40_000

    async with both_ends(proxy, upstream) as (client, server):

        async def send() -> None:
            client.writer.write(much)
            await client.writer.drain()
            client.writer.write_eof()

        sending = asyncio.create_task(send())
        assert await server.reader.read() == much
        await sending


async def test_it_delays_one_way(proxy: Proxy, upstream: Upstream) -> None:
    loop = asyncio.get_running_loop()
    proxy.delay(0.2, way="up")
    async with both_ends(proxy, upstream) as (client, server):
        begun = loop.time()
        for number in range(5):
            client.send(f"{number}\n")
            await asyncio.sleep(0.02)
        assert [await server.line() for _ in range(5)] == ["0", "1", "2", "3", "4"]
        # Late as one, not one after the other: that would be five times the delay.
        assert 0.2 <= loop.time() - begun < 1.0
        server.send("down\n")
        assert await client.line() == "down"


async def test_it_holds_back_and_lets_go(proxy: Proxy, upstream: Upstream) -> None:
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


async def test_a_sender_feels_a_pause(proxy: Proxy, upstream: Upstream) -> None:
    """The proxy holds a bounded amount; then the sender's own buffers fill."""
    proxy.pause()
    async with both_ends(proxy, upstream) as (client, _):
        client.writer.write(bytes(64 << 20))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.writer.drain()
        assert client.writer.transport.get_write_buffer_size() > 0


async def test_a_black_hole_takes_all_and_tells_nobody(proxy: Proxy, upstream: Upstream) -> None:
    async with both_ends(proxy, upstream) as (client, server):
        proxy.drop()
        client.send("lost\n")
        server.send("lost\n")
        client.abort()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await server.reader.read()
        assert proxy.connections == 1  # the server believes in it still


async def test_a_black_hole_accepts_and_the_server_never_hears(
    proxy: Proxy, upstream: Upstream
) -> None:
    proxy.drop()
    async with raw_nats_client(proxy.port) as client:
        client.send("lost\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.reader.read()
        await eventually(lambda: proxy.connections == 1)
        assert upstream.accepted.empty()
    await eventually(lambda: proxy.connections == 0)


async def test_a_stream_with_a_hole_does_not_go_on(proxy: Proxy, upstream: Upstream) -> None:
    async with both_ends(proxy, upstream) as (client, server):
        proxy.drop()
        client.send("lost\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await server.reader.read()
        proxy.restore()
        client.send("silent\n")
        async with both_ends(proxy, upstream) as (later, its_server):
            later.send("heard\n")
            assert await its_server.line() == "heard"
        proxy.cut()
        assert await server.reader.read() == b""


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


async def test_a_broken_end_breaks_the_other(proxy: Proxy, upstream: Upstream) -> None:
    async with both_ends(proxy, upstream) as (client, server):
        server.abort()
        assert await client.reader.read() == b""
        client.writer.write_eof()
        await eventually(lambda: proxy.connections == 0)


@pytest.mark.parametrize("count", [1, 7, 100_000])
async def test_it_cuts_in_the_middle(proxy: Proxy, upstream: Upstream, count: int) -> None:
    proxy.cut_after(count, way="down")
    async with both_ends(proxy, upstream) as (client, server):
        server.writer.write(b"x" * 200_000)
        client.send("the other way is not counted\n")
        assert await server.line() == "the other way is not counted"
        assert await client.reader.read() == b"x" * count
    async with both_ends(proxy, upstream) as (client, server):
        server.writer.write(b"once only\n")
        assert await client.line() == "once only"


async def test_it_refuses_and_takes_again_on_its_port(proxy: Proxy, upstream: Upstream) -> None:
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
    proxy.delay(3600)
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


async def test_a_cut_reaches_a_connection_that_has_just_come(proxy: Proxy) -> None:
    """Cut before its first step: nothing of it may stay open."""
    async with raw_nats_client(proxy.port) as client:
        while not proxy.connections:  # the very step in which it comes
            await asyncio.sleep(0)
        proxy.cut()
        async with asyncio.timeout(WITHIN):
            assert await client.reader.read() == b""
        await eventually(lambda: proxy.connections == 0)


async def test_no_server_behind_it_is_a_closed_connection(upstream: Upstream) -> None:
    async with NatsServer() as server:
        await server.stop()
        async with Proxy("127.0.0.1", server.port) as proxy, raw_nats_client(proxy.port) as client:
            assert await client.line() == ""


async def test_nothing_of_it_is_left(upstream: Upstream) -> None:
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


async def test_nats_through_it_is_cut_in_the_middle_of_a_message() -> None:
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
