"""Cut connections to NATS beyond an identity's share, those that flood, and closed sessions.

nats-server limits accounts only. Without shares, one identity could take all connections of its
account and lock the others out. The oldest are cut, because most identities with too many have lost
the oldest without notice of the server. One that floods loses all of its connections for a minute.

Sign-in runs the monitor: nobody else may list and close connections.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
from prometheus_client import Counter as MetricCounter

from libs.bus import connection_list
from libs.bus.connection_list import Connection, Traffic
from libs.bus.floods import QUARANTINE, FloodWatch
from libs.bus.permissions import NODES, SERVICES, account_of
from libs.bus.port import Bus, BusError, SubjectForbidden
from libs.bus.sessions import Session, parse_session_name
from libs.bus.slots import watch_notifications
from libs.contracts import subjects
from libs.contracts.identities import Identity
from libs.runtime.env import Env
from libs.runtime.logs import logger
from libs.runtime.metrics import Metrics

SHARES: Final = {NODES: 4, SERVICES: 16}
"""Connections of one identity, by account. A broken connection counts until the server notices,
while its successors connect; an identity of services may be several processes or people."""

PERIOD: Final = 60.0
"""Seconds between listings of all connections; notices may get lost."""
LOG_PERIOD: Final = 60.0
ADMISSION: Final = 10.0
"""Seconds in which a client may still be admitted that was granted before its session closed."""
LOOK_PERIOD: Final = 10.0
"""Seconds between two looks at the connections that have sent the most."""
BUSIEST: Final = 64
"""Connections of a server that such a look reads; the listing finds a flood behind them."""
ABSENT: Final = 2
"""Listings without an answer after which a server, and its connections, are forgotten."""

_log = logger()

_Key = tuple[str, int]


class _Owner(msgspec.Struct, frozen=True):
    """Whose share a connection counts against."""

    account: str
    name: str
    """The identity of its session; of a user that sign-in did not admit, what the server names."""


class _Closed(msgspec.Struct, frozen=True):
    matches: Callable[[Session], bool]
    at: float


def flood_counter(metrics: Metrics) -> MetricCounter:
    """Add the metric by which the alert `SluiceNATSFlooded` learns of floods."""
    return metrics.counter(
        "sluice_nats_floods",
        "How often a component lost its connections to NATS because it flooded it.",
    )


class ConnectionMonitor:
    """Counts the connections of each identity, and cuts those that must not be."""

    def __init__(self, *, bus: Bus, env: Env) -> None:
        self._bus = bus
        self._env = env
        self._clock = env.clock
        self._open: dict[_Owner, dict[_Key, Connection]] = {}
        self._absences: dict[str, int] = {}
        """By server: the listings in a row that it did not answer."""
        self._closed: list[_Closed] = []
        self._cuts: list[tuple[_Owner | None, Connection]] = []
        """Connections to cut; the owner is given for those beyond its share."""
        self._changed = asyncio.Event()
        self._logged: dict[_Owner, float] = {}
        self._floods = FloodWatch()
        self._kept_out: dict[_Owner, float] = {}
        """Until when the connections of senders that flooded are cut."""
        self.cut: Counter[str] = Counter()
        """Connections beyond the share that were cut, by identity."""
        self.floods: Counter[str] = Counter()
        """How often an identity lost its connections because it flooded."""
        self._flooded = flood_counter(env.metrics)

    def count(self, identity: Identity) -> int:
        """Return how many sessions of an identity are open, as far as it is known."""
        owner = _Owner(account_of(identity.writer), str(identity))
        return len(self._open.get(owner, ()))

    def close(self, matches: Callable[[Session], bool]) -> int:
        """Cut the sessions that match, and return how many are known.

        Sessions that match are also cut when they are found up to a minute later, because some
        were admitted but not announced yet. Before this call, begin to refuse them.
        """
        self._closed.append(_Closed(matches, self._clock.monotonic()))
        closing = [
            connection
            for connections in self._open.values()
            for connection in connections.values()
            if self._is_closed(connection)
        ]
        for connection in closing:
            self._remove(connection)
            self._cut(None, connection)
        return len(closing)

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
            tasks.create_task(self._look_forever(), name="busiest connections")
            tasks.create_task(self._cut_forever(), name="cut connections")

    # Counting.

    def _noticed(self, subject: str, data: bytes, _reply: str) -> None:
        connection = connection_list.read_notice(data)
        if connection is None:
            return
        if subject.endswith(".CONNECT"):
            self._add(connection)
        elif subject.endswith(".DISCONNECT"):
            self._remove(connection)

    def _add(self, connection: Connection) -> None:
        if connection.account not in SHARES:
            return
        if self._is_closed(connection):
            self._cut(None, connection)
            return
        owner = _owner(connection)
        if self._clock.monotonic() < self._kept_out.get(owner, 0.0):
            self._cut(None, connection)
            return
        of_owner = self._open.setdefault(owner, {})
        of_owner[connection.key] = connection
        while len(of_owner) > SHARES[owner.account]:
            oldest = min(of_owner.values(), key=lambda each: (each.start, each.cid))
            del of_owner[oldest.key]
            self._cut(owner, oldest)

    def _remove(self, connection: Connection) -> None:
        owner = _owner(connection)
        of_owner = self._open.get(owner, {})
        of_owner.pop(connection.key, None)
        if not of_owner:
            self._open.pop(owner, None)

    def _is_closed(self, connection: Connection) -> bool:
        session = parse_session_name(connection.user) if self._closed else None
        return session is not None and any(each.matches(session) for each in self._closed)

    async def _list_forever(self) -> None:
        while True:
            try:
                await self._list()
            except BusError as error:
                _log.debug("the connections to NATS were not listed", why=str(error))
            await self._clock.sleep(PERIOD)

    async def _list(self) -> None:
        """Read all connections; forget those that the servers have no more."""
        began = self._clock.monotonic()
        known = [each for of_owner in self._open.values() for each in of_owner.values()]
        servers = {each.server for each in known}
        answered, found = set[str](), set[_Key]()
        for server in await connection_list.list_servers(self._bus):
            try:
                async for page in connection_list.list_connections(self._bus, server):
                    found |= {each.connection.key for each in page}
                    for each in page:
                        self._add(each.connection)
                    self._cut_floods(page)
            except BusError as error:
                _log.debug("connections to a server were not listed", server=server, why=str(error))
            else:
                answered.add(server)
        absent = (self._absences.keys() | servers) - answered
        absences = {server: self._absences.get(server, 0) + 1 for server in absent}
        gone = {server for server, count in absences.items() if count >= ABSENT}
        for each in known:
            if each.key not in found and each.server in answered | gone:
                self._remove(each)
        self._floods.keep({key for of_owner in self._open.values() for key in of_owner})
        self._kept_out = {owner: until for owner, until in self._kept_out.items() if until > began}
        self._absences = {server: absences.get(server, 0) for server in answered | absent - gone}
        if not any(self._absences.values()):
            self._closed = [each for each in self._closed if each.at + ADMISSION > began]

    async def _look_forever(self) -> None:
        while True:
            await self._clock.sleep(LOOK_PERIOD)
            for server in tuple(self._absences):
                with suppress(BusError):  # the listing tells of servers that do not answer
                    self._cut_floods(
                        await connection_list.list_busiest(self._bus, server, limit=BUSIEST)
                    )

    # Cutting.

    def _cut_floods(self, listed: list[Traffic]) -> None:
        """Cut all connections of components that flood, and keep them out for a while."""
        of_nodes = [each for each in listed if each.connection.account == NODES]
        for flood in self._floods.observe(of_nodes):
            connection, owner = flood.connection, _owner(flood.connection)
            self._kept_out[owner] = self._clock.monotonic() + QUARANTINE
            for each in {connection.key: connection, **self._open.pop(owner, {})}.values():
                self._cut(None, each)
            self.floods[owner.name] += 1
            self._flooded.inc()
            _log.warning(
                "an identity floods NATS; its connections are cut for a while",
                identity=owner.name,
                user=connection.user,
                host=connection.host,
                messages_per_second=round(flood.messages),
                bytes_per_second=round(flood.bytes),
                seconds=QUARANTINE,
            )

    def _cut(self, owner: _Owner | None, connection: Connection) -> None:
        self._cuts.append((owner, connection))
        self._changed.set()

    async def _cut_forever(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            cuts, self._cuts = self._cuts, []
            excess: dict[_Owner, list[Connection]] = {}
            for owner, connection in cuts:
                if owner is not None:
                    excess.setdefault(owner, []).append(connection)
                with suppress(BusError):  # it was closed meanwhile, or is listed again
                    await connection_list.kick(self._bus, connection)
            for owner, connections in excess.items():
                self.cut[owner.name] += len(connections)
                self._log(owner, connections)

    def _log(self, owner: _Owner, cuts: list[Connection]) -> None:
        now = self._clock.monotonic()
        if now < self._logged.get(owner, -LOG_PERIOD) + LOG_PERIOD:
            return
        self._logged[owner] = now
        _log.warning(
            "an identity has too many connections to NATS; its oldest are cut",
            identity=owner.name,
            users=sorted({each.user for each in cuts}),
            share=SHARES[owner.account],
            hosts=sorted({each.host for each in cuts}),
            cut=self.cut[owner.name],
        )


def _owner(connection: Connection) -> _Owner:
    session = parse_session_name(connection.user)
    return _Owner(connection.account, str(session.identity) if session else connection.user)
