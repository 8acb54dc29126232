"""Cut the connections of an identity beyond its share: nats-server limits accounts only.

Without this, one key could take all connections of its account and lock the others out. The oldest
are cut, because most identities with too many have lost the oldest without notice of the server.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final

import msgspec

from libs.bus.permissions import NODES, SERVICES
from libs.bus.port import Bus, BusError, BusUnavailable, SubjectForbidden
from libs.bus.slots import watch_notifications
from libs.contracts import subjects
from libs.runtime.env import Env
from libs.runtime.logs import logger

SHARES: Final = {NODES: 4, SERVICES: 16}
"""Connections of one identity, by account. A broken connection counts until the server notices,
while its successors connect; an identity of services may be several processes or people."""

PERIOD: Final = 60.0
"""Seconds between listings of all connections; notices may get lost."""
LOG_PERIOD: Final = 60.0
_PAGE: Final = 1024

_log = logger()


class _Server(msgspec.Struct, frozen=True):
    id: str


class _Client(msgspec.Struct, frozen=True):
    id: int
    acc: str = ""
    user: str = ""
    host: str = ""


class _Notice(msgspec.Struct, frozen=True):
    server: _Server
    client: _Client


class _Connection(msgspec.Struct, frozen=True):
    cid: int
    account: str = ""
    authorized_user: str = ""
    ip: str = ""
    subscriptions_list: tuple[str, ...] = ()


class _Page(msgspec.Struct, frozen=True):
    connections: tuple[_Connection, ...] = ()


class _Listed(msgspec.Struct, frozen=True):
    server: _Server
    data: _Page = _Page()


class _User(msgspec.Struct, frozen=True):
    account: str
    key: str
    """The public key that the server verified."""


class _Cut(msgspec.Struct, frozen=True):
    user: _User
    cid: int
    server: str
    host: str


_notice = msgspec.json.Decoder(_Notice)
_listed = msgspec.json.Decoder(_Listed)


class ConnectionMonitor:
    """Counts the connections of each identity, and cuts those beyond its share."""

    def __init__(self, *, bus: Bus, env: Env) -> None:
        self._bus = bus
        self._env = env
        self._clock = env.clock
        self._open: dict[_User, dict[tuple[int, str], str]] = {}
        """By identity: the host of each connection, by its number and server."""
        self._excess: list[_Cut] = []
        self._changed = asyncio.Event()
        self._names: dict[_User, str] = {}
        self._logged: dict[_User, float] = {}
        self.cut: Counter[str] = Counter()
        """Connections that were cut, by identity."""

    async def run(self) -> None:
        """Watch until cancelled; wait while the bus is unavailable or does not permit it."""
        while True:
            try:
                await self._watch()
            except* SubjectForbidden as error:
                _log.warning("connections to NATS are not limited", why=str(error.exceptions[0]))
            await self._clock.sleep(PERIOD)

    async def _watch(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                watch_notifications(
                    bus=self._bus,
                    env=self._env,
                    pattern=subjects.CONNECTIONS,
                    handler=self._noticed,
                    on_subscribed=lambda: None,
                ),
                name="notices of connections",
            )
            tasks.create_task(self._list_forever(), name="list connections")
            tasks.create_task(self._cut_forever(), name="cut connections")

    # Counting.

    def _noticed(self, subject: str, data: bytes, _reply: str) -> None:
        try:
            notice = _notice.decode(data)
        except msgspec.DecodeError:
            return  # of another kind
        client, server = notice.client, notice.server.id
        user = _User(client.acc, client.user)
        if subject.endswith(".CONNECT"):
            self._add(user, client.id, server, client.host)
        elif subject.endswith(".DISCONNECT"):
            self._remove(user, (client.id, server))

    def _add(self, user: _User, cid: int, server: str, host: str) -> None:
        if user.account not in SHARES:
            return
        of_user = self._open.setdefault(user, {})
        of_user[cid, server] = host
        while len(of_user) > SHARES[user.account]:
            oldest = min(of_user)
            self._excess.append(_Cut(user, *oldest, of_user.pop(oldest)))
            self._changed.set()

    def _remove(self, user: _User, connection: tuple[int, str]) -> None:
        of_user = self._open.get(user, {})
        of_user.pop(connection, None)
        if not of_user:
            self._open.pop(user, None)

    async def _list_forever(self) -> None:
        while True:
            try:
                await self._list()
            except BusError as error:
                _log.debug("the connections to NATS were not listed", why=str(error))
            await self._clock.sleep(PERIOD)

    async def _list(self) -> None:
        """Read all connections of the server that answers; forget those that it has no more."""
        known = [(user, each) for user, of_user in self._open.items() for each in of_user]
        found: set[tuple[int, str]] = set()
        offset, servers = 0, set[str]()
        while True:
            listed = await self._ask(offset=offset)
            servers.add(listed.server.id)
            for each in listed.data.connections:
                found.add((each.cid, listed.server.id))
                user = _User(each.account, each.authorized_user)
                self._add(user, each.cid, listed.server.id, each.ip)
            if len(listed.data.connections) < _PAGE:
                break
            offset += _PAGE
        for user, connection in known:
            if connection[1] in servers and connection not in found:
                self._remove(user, connection)

    async def _ask(self, **options: object) -> _Listed:
        question = msgspec.json.encode({"auth": True, "limit": _PAGE, **options})
        answer = await self._bus.request(subjects.LIST_CONNECTIONS, question)
        try:
            return _listed.decode(answer)
        except msgspec.DecodeError as error:
            raise BusUnavailable(f"not a list of connections: {error}") from None

    # Cutting.

    async def _cut_forever(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            excess, self._excess = self._excess, []
            by_user: dict[_User, list[_Cut]] = {}
            for each in excess:
                by_user.setdefault(each.user, []).append(each)
            for user, cuts in by_user.items():
                name = await self._name(user)
                for each in cuts:
                    with suppress(BusError):  # it was closed meanwhile, or is listed again
                        question = msgspec.json.encode({"cid": each.cid})
                        await self._bus.request(subjects.kick(each.server), question)
                self.cut[name] += len(cuts)
                self._log(user, name, cuts)

    def _log(self, user: _User, name: str, cuts: list[_Cut]) -> None:
        now = self._clock.monotonic()
        if now < self._logged.get(user, -LOG_PERIOD) + LOG_PERIOD:
            return
        self._logged[user] = now
        _log.warning(
            "an identity has too many connections to NATS; its oldest are cut",
            identity=name,
            key=user.key,
            share=SHARES[user.account],
            hosts=sorted({each.host for each in cuts}),
            cut=self.cut[name],
        )

    async def _name(self, user: _User) -> str:
        """Return the identity, by the inbox to which only it may subscribe; else its key."""
        if user not in self._names:
            try:
                listed = await self._ask(subscriptions=True, acc=user.account, user=user.key)
            except BusError:
                return user.key
            for each in listed.data.connections:
                for subject in each.subscriptions_list:
                    identity = subjects.owner_of_inbox(subject)
                    if identity is not None:
                        self._names[user] = str(identity)
        return self._names.get(user, user.key)
