"""Bytes that are not UTF-8, where the protocol lets a client put them: no reader stops."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import nats
import pytest

from libs.bus.nats.bus import NatsBus, connect
from libs.bus.port import FromSequence
from libs.bus.read_stream import read_stream
from libs.contracts import subjects
from libs.contracts.subjects import EVENTS
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env
from tests.security.fuzz_messages import publication
from tests.security.identities import (
    A_DRIVER,
    A_TELEMETRY,
    SCHEDULER,
    TELEMETRY_CLUSTER,
    batch,
    beat,
    event,
)
from tests.security.world import World
from tests.support import eventually

BAD = b"\xff\xfe"


BAD_HEADERS = {
    "inline status": b"NATS/1.0 " + BAD + b"\r\n\r\n",
    "inline status and text": b"NATS/1.0 100 " + BAD + b"\r\n\r\n",
    "name": b"NATS/1.0\r\n" + BAD + b": 1\r\n\r\n",
    "value": b"NATS/1.0\r\na: " + BAD + b"\r\n\r\n",
    "first line only": b"NATS/1.0",
    "shorter than a first line": b"N\r\n\r\n",
    "other digits": "NATS/1.0 ²²²\r\n\r\n".encode(),
}


@asynccontextmanager
async def reader_and_writer() -> AsyncGenerator[tuple[NatsBus, Any]]:
    """Yield a bus and a plain client on a server that forbids nothing."""
    async with (
        NatsServer() as server,
        connect(url=server.url, identity=SCHEDULER, env=make_env()) as reader,
    ):
        writer = await nats.connect(server.url)
        yield reader, writer
        await writer.close()


async def send_raw(client: Any, data: bytes) -> None:
    """Send these bytes; return when the server has processed them."""
    client._transport.write(data)
    await client.flush()


@pytest.mark.parametrize("headers", BAD_HEADERS.values(), ids=BAD_HEADERS)
async def test_headers_that_are_not_text_are_read(headers: bytes) -> None:
    received: list[bytes] = []
    async with reader_and_writer() as (reader, writer):
        await reader.subscribe("a.*", lambda _subject, data, _reply: received.append(data))
        await send_raw(writer, publication(b"a.b", headers=headers))
        await send_raw(writer, publication(b"a.b", b"after"))
        await eventually(lambda: b"after" in received)


async def test_a_subject_and_a_reply_that_are_not_text_are_read() -> None:
    received: list[tuple[str, str]] = []
    async with reader_and_writer() as (reader, writer):
        await reader.subscribe(
            "a.*", lambda subject, _data, reply: received.append((subject, reply))
        )
        await send_raw(writer, publication(b"a." + BAD, reply=b"r." + BAD))
        await eventually(lambda: received != [])
    assert received == [("a.\\xff\\xfe", "r.\\xff\\xfe")]


async def test_a_stored_subject_that_is_not_text_is_read_past() -> None:
    """A message that a stream keeps comes again with each reading."""
    async with reader_and_writer() as (reader, writer):
        await reader.ensure(EVENTS)
        prefix = f"{subjects.ROOT}.event.default.a.driver".encode()
        await send_raw(writer, publication(prefix + b"." + BAD))
        await reader.store(EVENTS, event(A_DRIVER), b"after")
        pattern = subjects.cluster_pattern(subjects.Event, "default")
        for _ in range(2):
            messages = await read_stream(reader, EVENTS, pattern, start=FromSequence())
            assert [each.sequence for each in messages] == [1, 2]
            assert messages[0].subject.endswith("\\xff\\xfe")


async def test_a_node_cannot_stop_a_service(guarded: World) -> None:
    """What the permissions leave to a node's choice: replies, headers and contents."""
    received: list[str] = []
    for service, plane in ((SCHEDULER, subjects.Beat), (TELEMETRY_CLUSTER, subjects.Telemetry)):
        bus = await guarded.bus(service)
        pattern = subjects.cluster_pattern(plane, service.cluster)
        await bus.subscribe(pattern, lambda subject, _data, _reply: received.append(subject))
    for identity, subject in ((A_DRIVER, beat(A_DRIVER)), (A_TELEMETRY, batch(A_TELEMETRY))):
        node = await guarded.raw_client(identity)
        for headers in (b"", *BAD_HEADERS.values()):
            raw = publication(subject.encode(), BAD, reply=BAD, headers=headers)
            await send_raw(node.client, raw)
    await eventually(lambda: len(received) == 2 * (1 + len(BAD_HEADERS)))
