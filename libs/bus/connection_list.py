"""What nats-server tells about connections: notices of changes, and lists on request."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from libs.bus.port import Bus, BusUnavailable
from libs.contracts import subjects

ANSWERS_SECONDS: Final = 1.0
"""How long to wait for the answers of all servers, whose number is not known."""
PAGE: Final = 1024

_EPOCH: Final = datetime.fromtimestamp(0.0, UTC)


class Connection(msgspec.Struct, frozen=True):
    """A client's connection to one server."""

    server: str
    cid: int
    account: str
    user: str
    """As the server knows it: a public key, or the name of a session."""
    host: str
    start: datetime

    @property
    def key(self) -> tuple[str, int]:
        return self.server, self.cid


class Traffic(msgspec.Struct, frozen=True):
    """What a connection had sent to its server at a time of the server's clock."""

    connection: Connection
    at: datetime
    messages: int
    bytes: int


class _Server(msgspec.Struct, frozen=True):
    id: str


class _Client(msgspec.Struct, frozen=True):
    id: int
    acc: str = ""
    user: str = ""
    host: str = ""
    start: datetime = _EPOCH


class _Notice(msgspec.Struct, frozen=True):
    server: _Server
    client: _Client


class _Listed(msgspec.Struct, frozen=True):
    cid: int
    account: str = ""
    authorized_user: str = ""
    ip: str = ""
    start: datetime = _EPOCH
    in_msgs: int = 0
    in_bytes: int = 0


class _Connections(msgspec.Struct, frozen=True):
    now: datetime = _EPOCH
    connections: tuple[_Listed, ...] = ()


class _Page(msgspec.Struct, frozen=True):
    server: _Server
    data: _Connections = _Connections()


_notice = msgspec.json.Decoder(_Notice)
_page = msgspec.json.Decoder(_Page)


def read_notice(data: bytes) -> Connection | None:
    """Return the connection that a notice is about; None for notices of other kinds."""
    try:
        notice = _notice.decode(data)
    except msgspec.DecodeError:
        return None
    client = notice.client
    return Connection(
        notice.server.id, client.id, client.acc, client.user, client.host, client.start
    )


async def list_servers(bus: Bus) -> set[str]:
    """Return the servers that answer. Raise `BusError`.

    Their answers are of no other use: all but one list the asker's own account alone.
    """
    subject = subjects.list_connections()
    question = msgspec.json.encode({"limit": 1})
    answers = await bus.request_all(subject, question, within=ANSWERS_SECONDS)
    if not answers:
        raise BusUnavailable(f"{subject}: no server answered within {ANSWERS_SECONDS:g} s")
    return {_decode(answer).server.id for answer in answers}


async def list_connections(bus: Bus, server: str) -> AsyncIterator[list[Traffic]]:
    """Yield the connections to a server in pages. Raise `BusError`."""
    offset = 0
    while True:
        listed = await _ask(bus, server, offset=offset)
        yield _traffic(server, listed)
        offset += len(listed.connections)
        if len(listed.connections) < PAGE:
            break


async def list_busiest(bus: Bus, server: str, *, limit: int) -> list[Traffic]:
    """Return the connections that have sent the most messages. Raise `BusError`."""
    return _traffic(server, await _ask(bus, server, sort="msgs_from", limit=limit))


def _traffic(server: str, listed: _Connections) -> list[Traffic]:
    return [
        Traffic(
            Connection(server, each.cid, each.account, each.authorized_user, each.ip, each.start),
            listed.now,
            each.in_msgs,
            each.in_bytes,
        )
        for each in listed.connections
    ]


async def kick(bus: Bus, connection: Connection) -> None:
    """Close a connection. Raise `BusError`, also if its server is gone."""
    question = msgspec.json.encode({"cid": connection.cid})
    await bus.request(subjects.kick(connection.server), question)


async def _ask(bus: Bus, server: str, **options: object) -> _Connections:
    question = msgspec.json.encode({"auth": True, "limit": PAGE, **options})
    return _decode(await bus.request(subjects.list_connections(server), question)).data


def _decode(answer: bytes) -> _Page:
    try:
        return _page.decode(answer)
    except msgspec.DecodeError as error:
        raise BusUnavailable(f"not a list of connections: {error}") from None
