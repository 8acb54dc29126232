"""Readers of the page that do not read: they keep nobody out, and end."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest

from libs.ctl.web import server
from libs.ctl.web.server import PageServer, serve

_REQUEST = b"GET /api/changes HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def _tell(_node: str) -> bytes:
    return b"{}"


@asynccontextmanager
async def _page(data: bytes) -> AsyncGenerator[tuple[PageServer, str]]:
    """Serve a page that is told this again and again."""
    page = PageServer(
        push=lambda revision: (revision + 1, data),
        tell=_tell,
        on_change=lambda _changed: lambda: None,
        hosts=frozenset(),
    )
    async with serve(page, "127.0.0.1", 0) as address:
        yield page, address


@asynccontextmanager
async def _reader(address: str) -> AsyncGenerator[asyncio.StreamReader]:
    """Open a stream of which nothing is read but its first line."""
    host = urlsplit(address)
    reader, writer = await asyncio.open_connection(host.hostname, host.port, limit=1 << 10)
    writer.write(_REQUEST)
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    yield reader
    writer.transport.abort()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def _until_ended(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(10):
        with suppress(ConnectionError):
            while await reader.read(1 << 16):
                pass


async def test_of_too_many_streams_the_oldest_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser whose stream ends connects again by itself."""
    monkeypatch.setattr(server, "MOST_STREAMS", 2)
    async with (
        _page(b"{}") as (page, address),
        _reader(address) as oldest,
        _reader(address),
        _reader(address),
    ):
        await _until_ended(oldest)
        assert page.streams == 2


async def test_a_reader_that_reads_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WRITE_SECONDS", 0.05)
    monkeypatch.setattr(server, "PUSH_SECONDS", 0.0)
    monkeypatch.setattr(server, "BEAT_SECONDS", 0.0)
    async with _page(b"x" * (4 << 20)) as (page, address), _reader(address):
        async with asyncio.timeout(10):
            while not page.streams:
                await asyncio.sleep(0)
            while page.streams:
                await asyncio.sleep(0.01)
