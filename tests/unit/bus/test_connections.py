"""The monitor of connections on simulated servers: lost notices, lost servers, late admissions."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from libs.bus.connection_list import PAGE
from libs.bus.connections import (
    ABSENT,
    BUSIEST,
    LOOK_PERIOD,
    NODES,
    PERIOD,
    SHARES,
    ConnectionMonitor,
)
from libs.bus.floods import MOST_MESSAGES, QUARANTINE, SHORTEST
from libs.bus.sessions import Session, session_name
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import DAY
from libs.testing.bus import LocalServer
from libs.testing.bus.local_bus import LocalBus
from libs.testing.simulation import Sim
from tests.unit.bus.simulated import in_simulation

SIGN_IN = Identity(writer=Writer.SIGN_IN)
DRIVER = Identity(writer=Writer.DRIVER, node="a")
OTHER = Identity(writer=Writer.DRIVER, node="b")
NAMES = ("nats-0", "nats-1", "nats-2")


class Server:
    """One nats-server: its connections, listed and closed as the real one does."""

    def __init__(self, world: "World", name: str) -> None:
        self._world = world
        self.name = name
        self.open: dict[int, tuple[str, float]] = {}
        """By number: the user, and when it connected."""
        self.sent: dict[int, int] = {}
        """By number: the messages that it has sent."""
        self.answers = True
        self.pages = 0

    async def serve(self, bus: LocalBus) -> None:
        self._bus = bus
        await bus.subscribe(subjects.list_connections(), self._ping)
        await bus.subscribe(subjects.list_connections(self.name), self._list)
        await bus.subscribe(subjects.kick(self.name), self._kick)

    async def connect(self, user: str, *, announced: bool = True, age: float = 0.0) -> int:
        self._world.connected += 1
        cid, now = self._world.connected, self._world.clock.now() - age
        self.open[cid] = (user, now)
        if announced:
            client = {"id": cid, "acc": NODES, "user": user, "start": _stamp(now)}
            await self._publish("CONNECT", client)
        return cid

    async def disconnect(self, cid: int) -> None:
        user, _ = self.open.pop(cid)
        await self._publish("DISCONNECT", {"id": cid, "acc": NODES, "user": user})

    async def _publish(self, kind: str, client: dict[str, Any]) -> None:
        await self.notify(
            kind, msgspec.json.encode({"server": {"id": self.name}, "client": client})
        )

    async def notify(self, kind: str, data: bytes) -> None:
        await self._bus.publish(f"$SYS.ACCOUNT.{NODES}.{kind}", data)

    def _ping(self, _subject: str, _data: bytes, reply: str) -> None:
        self._answer(reply, [])

    def _list(self, _subject: str, data: bytes, reply: str) -> None:
        asked = msgspec.json.decode(data)
        self.pages += "sort" not in asked
        first = asked.get("offset", 0)
        listed: list[dict[str, Any]] = [
            {
                "cid": cid,
                "account": NODES,
                "authorized_user": user,
                "start": _stamp(start),
                "in_msgs": self.sent.get(cid, 0),
            }
            for cid, (user, start) in self.open.items()
        ]
        if asked.get("sort") == "msgs_from":
            listed.sort(key=lambda each: -self.sent.get(each["cid"], 0))
        self._answer(reply, listed[first : first + asked["limit"]])

    def _kick(self, _subject: str, data: bytes, reply: str) -> None:
        cid = msgspec.json.decode(data)["cid"]
        if self.answers and self.open.pop(cid, None):
            self._world.kicked.append((self.name, cid))
        self._answer(reply, [])

    def _answer(self, reply: str, connections: list[dict[str, Any]]) -> None:
        if self.answers:
            data = {"now": _stamp(self._world.clock.now()), "connections": connections}
            content = {"server": {"id": self.name}, "data": data}
            self._world.send(self._bus, reply, msgspec.json.encode(content))


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


class World:
    def __init__(self, sim: Sim) -> None:
        self.clock = sim.clock
        self.connected = 0
        self.kicked: list[tuple[str, int]] = []
        self._local = LocalServer(env=sim.env("bus"))
        self.monitor = ConnectionMonitor(bus=self._local.connect(SIGN_IN), env=sim.env("monitor"))
        self.servers = [Server(self, name) for name in NAMES]
        self.sending: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        for server in self.servers:
            await server.serve(self._local.connect(Identity(writer=Writer.SCHEDULER)))

    def send(self, bus: LocalBus, reply: str, data: bytes) -> None:
        task = asyncio.create_task(bus.publish(reply, data))
        self.sending.add(task)
        task.add_done_callback(self.sending.discard)

    async def listing(self, count: int = 1) -> None:
        """Wait for the end of this many listings."""
        await self.clock.sleep(count * (PERIOD + 10.0))


@asynccontextmanager
async def enter(sim: Sim) -> AsyncGenerator[World]:
    world = World(sim)
    await world.serve()
    task = asyncio.create_task(world.monitor.run(), name="monitor")
    await sim.clock.sleep(5.0)
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.wait({task, *world.sending})


in_virtual_time = in_simulation(enter)

POD = session_name(DRIVER, "pod")


@in_virtual_time
async def test_connections_of_all_servers_count(world: World) -> None:
    for server in world.servers:
        await server.connect(POD)
        await server.connect(session_name(OTHER, "pod"), announced=False)
    await world.clock.sleep(1.0)
    assert (world.monitor.count(DRIVER), world.monitor.count(OTHER)) == (3, 0)
    await world.listing()
    assert (world.monitor.count(DRIVER), world.monitor.count(OTHER)) == (3, 3)


@in_virtual_time
async def test_the_oldest_of_all_servers_is_cut(world: World) -> None:
    """Numbers of connections are each server's own, so the time decides."""
    first, second, _ = world.servers
    world.connected = 1_000
    oldest = await first.connect(POD)
    await world.clock.sleep(1.0)
    world.connected = 0
    for _ in range(SHARES[NODES]):
        await second.connect(POD)
        await world.clock.sleep(1.0)
    assert world.kicked == [(first.name, oldest)]
    assert world.monitor.count(DRIVER) == SHARES[NODES]
    assert world.monitor.cut == {str(DRIVER): 1}


@in_virtual_time
async def test_who_floods_loses_its_connections_for_a_minute(world: World) -> None:
    first, second, _ = world.servers
    flooding, beside = await first.connect(POD), await second.connect(POD)
    honest = await first.connect(session_name(OTHER, "pod"), age=DAY)
    first.sent[honest] = 1_000_000
    await world.listing()
    first.sent[honest] += int(MOST_MESSAGES * LOOK_PERIOD)
    first.sent[flooding] = int(2 * MOST_MESSAGES * LOOK_PERIOD)
    await world.clock.sleep(LOOK_PERIOD)
    assert sorted(world.kicked) == [(first.name, flooding), (second.name, beside)]
    assert world.monitor.floods == {str(DRIVER): 1}
    await world.clock.sleep(QUARANTINE / 2)
    again = await second.connect(POD)
    await world.clock.sleep(1.0)
    assert world.kicked[2:] == [(second.name, again)]
    await world.clock.sleep(QUARANTINE / 2)
    await second.connect(POD)
    await world.clock.sleep(1.0)
    assert world.monitor.count(DRIVER) == 1
    assert world.monitor.count(OTHER) == 1
    assert len(world.kicked) == 3


@in_virtual_time
async def test_a_flood_behind_the_busiest_is_found_by_listing(world: World) -> None:
    server = world.servers[0]
    for number in range(BUSIEST):
        name = session_name(replace(OTHER, node=f"old-{number}"), "pod")
        server.sent[await server.connect(name, age=DAY)] = 10_000_000
    flooding = await server.connect(POD)
    await world.listing()
    server.sent[flooding] = int(2 * MOST_MESSAGES * PERIOD)
    await world.listing()
    assert (server.name, flooding) in world.kicked
    assert world.monitor.floods.keys() == {str(DRIVER)}


@in_virtual_time
async def test_what_a_component_says_when_it_connects_is_no_flood(world: World) -> None:
    server = world.servers[0]
    await world.clock.sleep(LOOK_PERIOD - SHORTEST)
    server.sent[await server.connect(POD)] = int(MOST_MESSAGES * SHORTEST)
    await world.listing(2)
    assert world.kicked == []


@in_virtual_time
async def test_a_lost_disconnection_is_found_by_listing(world: World) -> None:
    server = world.servers[0]
    cid = await server.connect(POD)
    await world.clock.sleep(1.0)
    del server.open[cid]
    assert world.monitor.count(DRIVER) == 1
    await world.listing()
    assert world.monitor.count(DRIVER) == 0


@in_virtual_time
async def test_the_connections_of_a_lost_server_are_forgotten(world: World) -> None:
    """Its clients connect to the others, and must not be cut for what is gone."""
    lost, kept, _ = world.servers
    for server in (lost, kept):
        for _ in range(2):
            await server.connect(POD)
    await world.clock.sleep(1.0)
    lost.answers = False
    await world.listing(ABSENT - 1)
    assert world.monitor.count(DRIVER) == 4, "it may only be slow"
    await world.listing()
    assert world.monitor.count(DRIVER) == 2
    for _ in range(2):
        await kept.connect(POD)
    await world.clock.sleep(10.0)
    assert world.kicked == []


@in_virtual_time
async def test_a_server_that_was_slow_is_counted_again(world: World) -> None:
    slow = world.servers[0]
    await slow.connect(POD)
    slow.answers = False
    await world.listing(ABSENT + 1)
    assert world.monitor.count(DRIVER) == 0
    slow.answers = True
    await world.listing()
    assert world.monitor.count(DRIVER) == 1


@in_virtual_time
async def test_a_list_of_several_pages_is_read_to_its_end(world: World) -> None:
    server = world.servers[0]
    count = 2 * PAGE + 1
    for number in range(count):
        node = Identity(writer=Writer.DRIVER, node=f"n{number}")
        await server.connect(session_name(node, "pod"), announced=False)
    before = server.pages
    await world.listing()
    assert server.pages - before == 3
    nodes = (Identity(writer=Writer.DRIVER, node=f"n{number}") for number in range(count))
    assert sum(map(world.monitor.count, nodes)) == count


def is_the_pod(session: Session) -> bool:
    return session == Session(DRIVER, "pod")


@in_virtual_time
async def test_a_session_that_is_admitted_while_it_closes_is_cut(world: World) -> None:
    server = world.servers[0]
    known = await server.connect(POD)
    await server.connect(session_name(DRIVER, "successor"))
    await world.clock.sleep(1.0)

    assert world.monitor.close(is_the_pod) == 1

    announced = await server.connect(POD)
    silent = await server.connect(POD, announced=False)
    await world.clock.sleep(1.0)
    assert world.kicked == [(server.name, known), (server.name, announced)]
    await world.listing()
    assert world.kicked[2:] == [(server.name, silent)]
    assert world.monitor.count(DRIVER) == 1
    assert world.monitor.cut == {}


@in_virtual_time
async def test_a_closed_session_is_remembered_until_every_server_was_asked(world: World) -> None:
    first, slow, _ = world.servers
    await slow.connect(POD)
    await world.clock.sleep(1.0)
    slow.answers = False
    assert world.monitor.close(is_the_pod) == 1
    await world.listing()
    assert world.kicked == []
    slow.answers = True
    await world.listing()
    assert [name for name, _ in world.kicked] == [slow.name]

    await world.listing()
    await first.connect(POD)
    await world.listing()
    assert world.monitor.count(DRIVER) == 1, "it is not remembered forever"


@in_virtual_time
async def test_other_notices_are_ignored(world: World) -> None:
    server = world.servers[0]
    for data in (b"", b"{}", b'{"server":{"id":1}}', b"[" * 100):
        await server.notify("CONNECT", data)
    await server.notify("UPDATE", b"{}")
    await server.connect(POD)
    await world.clock.sleep(1.0)
    assert world.monitor.count(DRIVER) == 1
