"""A node whose tokens were stolen: it sends what a NATS client never would, and floods HTTP.

Every message is one that a reader, a mirror or the server could stumble over. All are sent in the
node's own name, with the tokens of its own components, as the server allows it.
"""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from demo.node_agents import AGENT_KINDS
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from tests.security.fuzz_messages import publication

_CONNECTIONS: Final = 200
_HOLD_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 1.0
_KINDS: Final = 50
_AT_ONCE: Final = 500
_BAD: Final = b"\xff\xfe"


class HostileNode:
    """The attacks of one node, in turn until cancelled."""

    def __init__(
        self,
        node: str,
        *,
        nats_url: str,
        token_of: Callable[[Identity], Path],
        pages: Callable[[], Sequence[str]],
        random: random.Random,
    ) -> None:
        """`pages` returns the URLs of pages to flood."""
        self._node = node
        self._nats = urlsplit(nats_url)
        self._token_of = token_of
        self._pages = pages
        self._random = random
        self.sent = 0
        """Messages sent to the bus so far."""
        self.requests = 0
        """HTTP requests sent so far."""

    async def run(self) -> None:
        """Attack until cancelled; a refused or broken connection only ends one attack."""
        while True:
            for attack in (
                self._send_malformed,
                self._take_connections,
                self._flood_pages,
                self._flood_bus,
            ):
                with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                    async with asyncio.timeout(30):
                        await attack()
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _send_malformed(self) -> None:
        for writer in AGENT_KINDS:
            identity = Identity(node=self._node, writer=writer)
            messages = [*malformed_messages(identity)]
            self._random.shuffle(messages)
            async with self._connected(identity) as (reader, out):
                for message in messages:
                    out.write(message)
                    self.sent += 1
                    if out.is_closing():
                        break
                out.write(b"PING\r\n")
                await out.drain()
                while line := await reader.readline():
                    if line.startswith(b"PONG"):
                        break

    async def _take_connections(self) -> None:
        """Open many connections with one token, and hold them for a while."""
        identity = Identity(node=self._node, writer=self._random.choice([*AGENT_KINDS]))
        held: list[asyncio.StreamWriter] = []
        try:
            for _ in range(_CONNECTIONS):
                _, out = await self._connect(identity)
                held.append(out)
            await asyncio.sleep(_HOLD_SECONDS)
        finally:
            for out in held:
                out.transport.abort()

    async def _flood_pages(self) -> None:
        """Pipeline requests on many connections without reading any response."""
        held: list[asyncio.StreamWriter] = []
        try:
            for url in self._pages():
                page = urlsplit(url)
                for _ in range(_CONNECTIONS // 4):
                    _, out = await asyncio.open_connection(page.hostname, page.port)
                    held.append(out)
                    out.write(f"GET {page.path} HTTP/1.1\r\nHost: a\r\n\r\n".encode() * 20)
                    self.requests += 20
            await asyncio.sleep(_HOLD_SECONDS)
        finally:
            for out in held:
                out.transport.abort()

    async def _flood_bus(self) -> None:
        """Send heartbeats and reports as fast as the server takes them, until it closes."""
        identity = Identity(node=self._node, writer=self._random.choice([*AGENT_KINDS]))
        scope = {
            "cluster": identity.cluster,
            "node": identity.node,
            "component": identity.writer.value,
        }
        subject: subjects.Subject = subjects.Beat(**scope)
        if self._random.random() < 0.5:
            subject = subjects.State(**scope, kind="facts")
        several = publication(str(subject).encode(), b"{}") * _AT_ONCE
        async with self._connected(identity) as (_, out):
            while not out.is_closing():
                out.write(several)
                self.sent += _AT_ONCE
                await out.drain()
                await asyncio.sleep(0)

    @asynccontextmanager
    async def _connected(
        self, identity: Identity
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, out = await self._connect(identity)
        try:
            yield reader, out
        finally:
            out.transport.abort()

    async def _connect(
        self, identity: Identity
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Sign in with the token of an identity; raise OSError while it has none."""
        token = await asyncio.to_thread(self._token_of(identity).read_text)
        reader, out = await asyncio.open_connection(self._nats.hostname, self._nats.port)
        options = {
            "auth_token": token,
            "verbose": False,
            "headers": True,
            "protocol": 1,
        }
        out.write(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
        while not (await reader.readline()).startswith(b"PONG"):
            if reader.at_eof():
                raise ConnectionResetError("refused")
        return reader, out


def malformed_messages(identity: Identity) -> Iterator[bytes]:
    """Yield protocol messages of one component that no client of ours would send."""
    scope = {"cluster": identity.cluster, "node": identity.node}
    component = {**scope, "component": identity.writer.value}
    beat = str(subjects.Beat(**component)).encode()
    events = str(subjects.Event(**scope, writer=identity.writer, kind="command")).encode()
    reports = [
        str(subjects.State(**component, kind=kind)).encode()
        for kind in ("facts", "progress", "result", "refusal", "holders", "evidence")
    ]
    for subject in (beat, events, *reports):
        name = subject.rpartition(b".")[0]
        yield publication(name + b"." + _BAD)
        yield publication(subject, reply=b"a." + _BAD)
        for headers in (b"NATS/1.0 " + _BAD, b"NATS/1.0\r\n" + _BAD + b": 1", b"N"):
            yield publication(subject, headers=headers + b"\r\n\r\n")
        for data in malformed_bodies():
            yield publication(subject, data)
    if identity.writer is Writer.TELEMETRY:
        batch = str(subjects.Telemetry(**scope)).encode()
        yield publication(batch, b"\xdf\xff\xff\xff\xff")
        yield publication(batch, headers=b"NATS/1.0\r\n" + _BAD + b": 1\r\n\r\n")
    for number in range(_KINDS):
        kind = f"invented-{number}"
        yield publication(str(subjects.State(**component, kind=kind)).encode(), b"x" * 100_000)


def malformed_bodies() -> Iterator[bytes]:
    """Yield bodies over which a decoder could stumble."""
    digits = b"9" * 4300
    yield b""
    yield b"{"
    yield _BAD
    yield b"[" * 100_000
    yield b'{"v":1,"token":' + digits + b"}"
    yield b'{"v":1,"body":{"token":' + digits + b',"op":' + digits + b"}}"
    yield b'{"v":' + digits + b"}"
    yield b'{"v":1e999}'
    yield b'{"v":1,"node":"\\ud800"}'
