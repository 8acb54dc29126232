"""A NATS server on the loopback whose verdict on credentials is scripted."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

ACCEPT, REFUSE = b"PONG\r\n", b"-ERR 'Authorization Violation'\r\n"

_INFO = {"version": "2.15.1", "max_payload": 1_048_576, "headers": True, "auth_required": True}


class FakeServer:
    """Each connection gets the next verdict; the last one is repeated.

    With `pings`, the server sends PING while the verdict is pending, as nats-server does after two
    seconds, and tells the verdict only after the client has answered.
    """

    def __init__(self, *verdicts: bytes, pings: int = 0, **info: object) -> None:
        self.connects: list[dict[str, Any]] = []
        """The content of each CONNECT."""
        self.answered_pings = 0
        self.is_silent = False
        self.port = 0
        self._verdicts = _repeat_last(verdicts)
        self._pings = pings
        self._info = {**_INFO, **info}
        self._sessions: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def sessions(self) -> int:
        """The number of connections that were accepted and are open."""
        return len(self._sessions)

    def end_sessions(self, error: bytes) -> None:
        """Send an error to the accepted connections and close them."""
        for writer in self._sessions:
            writer.write(error)
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(f"INFO {json.dumps(self._info)}\r\n".encode())
            self.connects.append(json.loads((await reader.readline()).split(b" ", 1)[1]))
            assert await reader.readline() == b"PING\r\n"
            for _ in range(self._pings):
                writer.write(b"PING\r\n")
                if await reader.readline() != b"PONG\r\n":
                    return
                self.answered_pings += 1
            if self.is_silent:
                await reader.read()
                return
            verdict = next(self._verdicts)
            writer.write(verdict)
            if verdict.endswith(ACCEPT):
                self._sessions.add(writer)
                while line := await reader.readline():
                    if line.startswith(b"PING"):
                        writer.write(b"PONG\r\n")
        except (ConnectionError, IndexError):
            pass
        finally:
            self._sessions.discard(writer)
            writer.close()


@asynccontextmanager
async def running(server: FakeServer) -> AsyncGenerator[FakeServer]:
    """Serve until the end of the block."""
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield server
        server.end_sessions(b"")


def _repeat_last(verdicts: tuple[bytes, ...]) -> Iterator[bytes]:
    yield from verdicts
    while True:
        yield verdicts[-1]
