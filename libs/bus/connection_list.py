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
    subscriptions_list: tuple[str, ...] = ()


class _Connections(msgspec.Struct, frozen=True):
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


async def list_connections(bus: Bus) -> AsyncIterator[tuple[str, list[Connection]]]:
    """Yield the connections of each server that answers, in pages. Raise `BusError`."""
    subject = subjects.list_connections()
    first = await bus.request_all(subject, _question(), within=ANSWERS_SECONDS)
    if not first:
        raise BusUnavailable(f"{subject}: no server answered within {ANSWERS_SECONDS:g} s")
    for answer in first:
        page, offset = _decode(answer), 0
        server = page.server.id
        while True:
            listed = page.data.connections
            yield server, [_connection(server, each) for each in listed]
            offset += len(listed)
            if len(listed) < PAGE:
                break
            question = _question(offset=offset)
            page = _decode(await bus.request(subjects.list_connections(server), question))


async def find_inboxes(bus: Bus, *, account: str, user: str) -> list[str]:
    """Return the subscriptions of a user's connections. Raise `BusError`."""
    question = _question(subscriptions=True, acc=account, user=user)
    answers = await bus.request_all(subjects.list_connections(), question, within=ANSWERS_SECONDS)
    listed = (each for answer in answers for each in _decode(answer).data.connections)
    return [subject for each in listed for subject in each.subscriptions_list]


async def kick(bus: Bus, connection: Connection) -> None:
    """Close a connection. Raise `BusError`, also if its server is gone."""
    question = msgspec.json.encode({"cid": connection.cid})
    await bus.request(subjects.kick(connection.server), question)


def _question(**options: object) -> bytes:
    return msgspec.json.encode({"auth": True, "limit": PAGE, **options})


def _decode(answer: bytes) -> _Page:
    try:
        return _page.decode(answer)
    except msgspec.DecodeError as error:
        raise BusUnavailable(f"not a list of connections: {error}") from None


def _connection(server: str, listed: _Listed) -> Connection:
    return Connection(
        server, listed.cid, listed.account, listed.authorized_user, listed.ip, listed.start
    )
