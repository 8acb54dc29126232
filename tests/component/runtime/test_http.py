"""The HTTP server: pages, errors of listening, and clients that misbehave."""

import asyncio
import socket

import aiohttp
import pytest
from structlog.testing import capture_logs

from libs.runtime.fatal import Fatal
from libs.runtime.http import MAX_CONNECTIONS, MAX_HEAD, HttpServer, HttpSettings, Page

LOOPBACK = HttpSettings(host="127.0.0.1", port=0)


async def test_a_page_is_rendered_for_each_request():
    asked: list[int] = []

    def page() -> Page:
        asked.append(1)
        return Page(f"{len(asked)}".encode(), status=200 + len(asked))

    async with (
        HttpServer(HttpSettings(host="127.0.0.1", port=0), {"/page": page}) as server,
        aiohttp.ClientSession() as session,
    ):
        host, port = server.address
        assert host == "127.0.0.1"
        for number in (1, 2):
            async with session.get(f"http://{host}:{port}/page") as answer:
                assert (answer.status, await answer.text()) == (200 + number, str(number))
        async with session.post(f"http://{host}:{port}/page") as answer:
            assert answer.status == 405


async def test_a_port_in_use_is_fatal():
    async with HttpServer(HttpSettings(host="127.0.0.1", port=0), {}) as first:
        host, port = first.address
        second = HttpServer(HttpSettings(host=host, port=port), {})
        with pytest.raises(Fatal, match=f"HTTP cannot listen on 127.0.0.1:{port}: Address already"):
            await second.__aenter__()
    async with HttpServer(HttpSettings(host=host, port=port), {}) as third:
        assert third.address == (host, port), "the first gave its port back"


@pytest.mark.parametrize(
    ("host", "why"),
    [("192.0.2.1", "Cannot assign requested address"), ("a..b", ".*label empty or too long.*")],
)
async def test_an_unusable_host_is_fatal(host: str, why: str):
    server = HttpServer(HttpSettings(host=host, port=0), {})
    with pytest.raises(Fatal, match=f"HTTP cannot listen on {host}:0: {why}; choose another host"):
        await server.__aenter__()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        (b"GET /page?x=1 HTTP/1.0\r\n\r\n", 200),
        (b"HEAD /page HTTP/1.1\r\n\r\n", 200),
        (b"GET /other HTTP/1.1\r\n\r\n", 404),
        (b"PUT /page HTTP/1.1\r\n\r\n", 405),
        (b"GET /page HTTP/2\r\n\r\n", 400),
        (b"GET /\xff\xfe HTTP/1.1\r\n\r\n", 404),
        (b"\x16\x03\x01\x00\xa5 TLS\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET /page HTTP/1.1\r\nX: " + b"x" * 2 * MAX_HEAD, 431),
    ],
)
async def test_a_request_gets_one_response(request_bytes: bytes, status: int):
    async with HttpServer(LOOPBACK, {"/page": lambda: Page(b"body")}) as server:
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(request_bytes)
        response = await reader.read()
        writer.close()
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert (body == b"body") == (status == 200 and not request_bytes.startswith(b"HEAD"))


async def test_a_connection_serves_one_request_however_many_are_sent():
    rendered: list[int] = []

    def page() -> Page:
        rendered.append(1)
        return Page(b"x" * 1_000_000)

    async with HttpServer(LOOPBACK, {"/page": page, "/probe": lambda: Page(b"ok")}) as server:
        writers: list[asyncio.StreamWriter] = []
        for _ in range(MAX_CONNECTIONS // 2):
            _, writer = await asyncio.open_connection(*server.address)
            writer.write(b"GET /page HTTP/1.1\r\n\r\n" * 1000)
            writers.append(writer)
        reader, probe = await asyncio.open_connection(*server.address)
        probe.write(b"GET /probe HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"ok")
        assert len(rendered) <= len(writers)
        for writer in [*writers, probe]:
            writer.close()


async def test_too_many_connections_end_the_oldest():
    async with HttpServer(LOOPBACK, {"/page": lambda: Page(b"body")}) as server:
        idle = [await asyncio.open_connection(*server.address) for _ in range(MAX_CONNECTIONS)]
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(b"GET /page HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"body")
        assert await idle[0][0].read() == b""
        assert not idle[1][0].at_eof()
        for _, each in [*idle, (reader, writer)]:
            each.close()


async def test_connections_that_are_displaced_before_they_are_served_are_closed():
    """All arrive in one step of the event loop, so that no task of a displaced one has begun."""
    async with HttpServer(LOOPBACK, {"/": lambda: Page(b"x")}) as server:
        pairs = [socket.socketpair() for _ in range(2 * MAX_CONNECTIONS)]
        loop = asyncio.get_running_loop()
        transports: list[asyncio.BaseTransport] = []
        for _, ours in pairs:
            reader = asyncio.StreamReader(loop=loop)
            protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
            transport, _ = await loop.connect_accepted_socket(lambda p=protocol: p, ours)
            transports.append(transport)
        writers = [
            asyncio.StreamWriter(each, each.get_protocol(), asyncio.StreamReader(), loop)  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType, reportUnknownMemberType]
            for each in transports
        ]
        for writer in writers:
            server._accept(asyncio.StreamReader(), writer)  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(0.1)
        closed = [each.is_closing() for each in transports]
        assert closed == [True] * MAX_CONNECTIONS + [False] * MAX_CONNECTIONS
    for theirs, _ in pairs:
        theirs.close()


async def test_an_idle_connection_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("libs.runtime.http.CONNECTION_SECONDS", 0.05)
    async with HttpServer(LOOPBACK, {}) as server:
        reader, writer = await asyncio.open_connection(*server.address)
        assert await reader.read() == b""
        writer.close()


async def test_a_page_that_cannot_be_rendered_is_an_error_and_the_next_is_served():
    def broken() -> Page:
        raise ValueError("no such metric")

    async with HttpServer(LOOPBACK, {"/broken": broken, "/page": lambda: Page(b"ok")}) as server:
        with capture_logs() as logs:
            for path, status in (("/broken", b"500"), ("/page", b"200")):
                reader, writer = await asyncio.open_connection(*server.address)
                writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
                assert (await reader.read()).startswith(b"HTTP/1.1 " + status)
                writer.close()
    assert [entry["target"] for entry in logs if entry["log_level"] == "error"] == ["/broken"]
