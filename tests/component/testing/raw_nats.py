"""A client of plain NATS lines."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

WITHIN = 10.0
"""Timeout in seconds; the tests need milliseconds on a fast machine."""


class RawNatsClient:
    """A client that sends and reads plain lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.info: dict[str, Any] = {}

    async def line(self) -> str:
        """Return the next line without its line end; empty at the end of the stream."""
        async with asyncio.timeout(WITHIN):
            return (await self.reader.readline()).decode().strip()

    def send(self, text: str) -> None:
        """Send the text as it is; no line end is added."""
        self.writer.write(text.encode())

    async def handshake(self, **options: object) -> str:
        """Read INFO, send CONNECT and PING; return the response."""
        verb, _, info = (await self.line()).partition(" ")
        assert verb == "INFO"
        self.info = json.loads(info)
        self.send(f"CONNECT {json.dumps({'verbose': False, **options})}\r\nPING\r\n")
        return await self.line()

    def abort(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def raw_nats_client(port: int) -> AsyncGenerator[RawNatsClient]:
    """Yield a client; close its connection at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = RawNatsClient(reader, writer)
    try:
        yield client
    finally:
        client.abort()


async def refused(port: int) -> bool:
    try:
        async with raw_nats_client(port):
            return False
    except ConnectionRefusedError:
        return True
