"""Three servers with sign-in and TLS: they were one, and one may be lost and comes back."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from libs.bus.connections import NODES, SHARES, ConnectionMonitor
from libs.bus.nats.bus import NatsBus, connect
from libs.bus.port import BusUnavailable, FromSequence
from libs.bus.read_stream import read_stream
from libs.bus.server_config import ServerCluster, Tls, server_config
from libs.bus.streams import streams_with
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import COMMANDS, EVENTS, STATE, STREAMS, Stream
from libs.testing.child_process import HOST, ReservedPort
from libs.testing.nats import NatsServer
from libs.testing.nats_cluster import NatsCluster, nats_cluster
from libs.testing.sign_in import TokenSignIn
from libs.testing.simulation import make_env
from tests.component.bus.recorders import RecordingFollower
from tests.support import eventually

SCHEDULER = Identity(writer=Writer.SCHEDULER)
AGENTS = tuple(Identity(writer=Writer.DRIVER, node=f"gpu-{number}") for number in range(6))
NEWCOMER = Identity(writer=Writer.DRIVER, node="newcomer")
PATIENCE = 60.0
"""Seconds for an election, on the slowest machine."""

T = TypeVar("T")


class World:
    """The cluster, and clients that end with the test."""

    def __init__(self, cluster: NatsCluster, sign_in: TokenSignIn) -> None:
        self.cluster = cluster
        self.sign_in = sign_in
        self.ends = AsyncExitStack()

    async def bus(self, identity: Identity, *, server: str = "") -> NatsBus:
        """Connect to this server, by default to any."""
        return await self.ends.enter_async_context(self.connect(identity, server=server))

    @asynccontextmanager
    async def connect(self, identity: Identity, *, server: str = "") -> AsyncGenerator[NatsBus]:
        async with connect(
            url=self.cluster.url_of(server) if server else self.cluster.url,
            identity=identity,
            env=make_env(),
            credentials=self.sign_in.credentials(identity, ca_file=self.cluster.ca_file),
            wait=PATIENCE,
        ) as bus:
            yield bus

    async def sign_in_process(self) -> NatsBus:
        """Run a process that answers the servers' requests."""
        return await self.ends.enter_async_context(
            self.sign_in.run(self.cluster.url, ca_file=self.cluster.ca_file)
        )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with _started(tmp_path, grows=False) as world:
        yield world


@pytest.fixture
async def growing(tmp_path: Path) -> AsyncGenerator[World]:
    """Only the first server runs."""
    async with _started(tmp_path, grows=True) as world:
        yield world


@asynccontextmanager
async def _started(folder: Path, *, grows: bool) -> AsyncGenerator[World]:
    sign_in = TokenSignIn([SCHEDULER, NEWCOMER, *AGENTS], folder)

    def configure(tls: Tls, cluster: ServerCluster | None) -> str:
        return server_config(sign_in.settings(), tls=tls, cluster=cluster)

    async with nats_cluster(configure, grows=grows) as cluster:
        entered = World(cluster, sign_in)
        async with entered.ends:
            yield entered


async def persistently(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call while the bus is unavailable, as its callers do."""
    results: list[T] = []

    async def try_once() -> bool:
        try:
            results.append(await call())
        except BusUnavailable:
            return False
        return True

    await eventually(try_once, within=PATIENCE, every=0.1)
    return results[0]


async def cluster_of(bus: NatsBus, stream: str) -> dict[str, Any]:
    answer = await bus.request(subjects.js_api("STREAM", "INFO", stream), b"")
    info = msgspec.json.decode(answer)
    if "cluster" not in info:
        raise BusUnavailable(f"{stream}: {info['error']}")
    return info["cluster"]


async def is_complete(bus: NatsBus) -> bool:
    """Report whether each stream has a leader and two replicas that are current."""
    try:
        found = [await cluster_of(bus, stream.name) for stream in streams_with(3)]
    except BusUnavailable:
        return False
    return all(
        each.get("leader")
        and [replica["current"] for replica in each.get("replicas", ())] == [True, True]
        for each in found
    )


async def ensure_all(scheduler: NatsBus, streams: Iterable[Stream]) -> None:
    """Ensure the streams as a scheduler does when it starts."""
    for stream in streams:
        await persistently(partial(scheduler.ensure, stream))


class Fleet:
    """The scheduler and the agents, and all that was acknowledged to them."""

    def __init__(self, world: World, scheduler: NatsBus, agents: list[NatsBus]) -> None:
        self._world = world
        self._scheduler = scheduler
        self._agents = agents
        self.events: list[bytes] = []
        self.followed = RecordingFollower()
        self._stored: dict[tuple[str, str], bytes] = {}

    async def work(self, mark: str) -> None:
        """Report, command, publish events and sign in, all to the end."""
        for agent in self._agents:
            await self._work_with(agent, mark)
        async with self._world.connect(NEWCOMER) as newcomer:
            assert newcomer.link.is_up

    async def kept(self) -> bool:
        """Return whether the last slot and the last report of each agent are still there."""
        streams = {each.name: each for each in STREAMS}
        found: dict[tuple[str, str], bytes] = {}
        for name, subject in self._stored:
            message = await persistently(partial(self._scheduler.last, streams[name], subject))
            if message is not None:
                found[name, subject] = message.data
        return found == self._stored

    async def _work_with(self, agent: NatsBus, mark: str) -> None:
        of_node = {"cluster": "default", "node": agent.identity.node}
        scope = {**of_node, "component": "driver"}
        slot = str(subjects.Command(**scope))
        report = str(subjects.State(**scope, kind="progress"))
        event = str(subjects.Event(**of_node, writer="driver", kind="command"))
        data = f"{mark} {agent.identity.node}".encode()
        self._stored |= {(COMMANDS.name, slot): data, (STATE.name, report): data}
        await persistently(lambda: agent.store(STATE, report, data, id=f"report {mark} {report}"))
        await persistently(lambda: agent.store(EVENTS, event, data, id=f"event {mark} {event}"))
        self.events.append(data)
        await persistently(lambda: self._scheduler.store(COMMANDS, slot, data))

        async def reads_command() -> bool:
            stored = await persistently(lambda: agent.last(COMMANDS, slot))
            return stored is not None and stored.data == data

        await eventually(reads_command, within=PATIENCE)
        await eventually(lambda: data in self.followed.data, within=PATIENCE)


@pytest.mark.dear("one real server becomes three, and two of them die")
async def test_reports_commands_events_and_sign_ins_go_on_without_a_server(
    growing: World,
) -> None:
    """One server becomes three first, and nothing that it stored is lost."""
    world = growing
    await world.sign_in_process()
    await world.sign_in_process()
    scheduler = await world.bus(SCHEDULER)
    origin, *_ = world.cluster.servers
    await ensure_all(scheduler, streams_with(1, origin=origin))
    agents = [await world.bus(agent) for agent in AGENTS]
    fleet = Fleet(world, scheduler, agents)
    pattern = subjects.cluster_pattern(subjects.State, "default")
    following = await scheduler.follow(STATE, pattern, fleet.followed, start=FromSequence())
    await fleet.work("with one server")

    earlier = await world.bus(SCHEDULER)
    async with asyncio.TaskGroup() as group:
        # The schedulers of both versions, while one takes the other's place.
        group.create_task(ensure_all(earlier, streams_with(1, origin=origin)), name="earlier")
        group.create_task(ensure_all(scheduler, streams_with(3, origin=origin)), name="later")
        await world.cluster.grow()
    await ensure_all(scheduler, streams_with(3, origin=origin))
    await eventually(lambda: is_complete(scheduler), within=PATIENCE, every=0.2)
    assert await fleet.kept()
    await fleet.work("with three servers")

    lost = set[str]()
    for number in range(2):
        leader = (await persistently(lambda: cluster_of(scheduler, COMMANDS.name)))["leader"]
        lost.add(leader)
        await world.cluster.servers[leader].kill()
        await fleet.work(f"without {leader}, {number}")
        await world.cluster.servers[leader].start()
        await eventually(lambda: is_complete(scheduler), within=PATIENCE, every=0.2)
        await fleet.work(f"with {leader} again, {number}")

    assert len(lost) == 2, "the second leader's loss needs the first server's copy"
    events = subjects.cluster_pattern(subjects.Event, "default")
    stored = await read_stream(scheduler, EVENTS, events, start=FromSequence())
    await following.close()
    assert [each.data for each in stored] == fleet.events
    assert world.sign_in.unreadable == []


@asynccontextmanager
async def monitoring(bus: NatsBus) -> AsyncGenerator[ConnectionMonitor]:
    monitor = ConnectionMonitor(bus=bus, env=make_env())
    task = asyncio.create_task(monitor.run(), name="monitor")
    try:
        yield monitor
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_the_monitor_sees_the_connections_to_every_server(world: World) -> None:
    bus = await world.sign_in_process()
    agent, *_ = AGENTS
    buses = [await world.bus(agent, server=server) for server in world.cluster.servers]
    async with monitoring(bus) as monitor:
        await eventually(lambda: monitor.count(agent) == len(buses))

        buses += [await world.bus(agent, server=server) for server in world.cluster.servers]
        await eventually(lambda: monitor.cut[str(agent)] >= len(buses) - SHARES[NODES])
        assert monitor.count(agent) <= SHARES[NODES]

        world.sign_in.pods.clear()
        assert 0 < monitor.close(lambda session: session.identity == agent) <= SHARES[NODES]
        await eventually(lambda: not any(each.link.is_up for each in buses), within=PATIENCE)
        assert monitor.count(agent) == 0


async def test_a_server_with_another_name_in_its_certificate_does_not_join(
    world: World, tmp_path: Path
) -> None:
    """The authority is the same, as that of certificates for other purposes may be."""
    pair = world.cluster.authority.issue(tmp_path, "other", names=("other.example",))
    tls = Tls(
        cert_file=str(pair.cert_file), key_file=str(pair.key_file), ca_file=world.cluster.ca_file
    )
    port = ReservedPort()
    described = ServerCluster(
        name="sluice", listen=f"{HOST}:{port.number}", routes=world.cluster.routes, size=3
    )
    sign_in = world.sign_in.settings()
    config = f"server_name: other\n{server_config(sign_in, tls=tls, cluster=described)}"
    async with NatsServer(config=config) as other:
        refused = "Route Error 'Authorization Violation'"
        await eventually(lambda: refused in other.log, within=PATIENCE)
        bus = await world.sign_in_process()
        names: set[str] = set()

        async def have_answered() -> bool:
            for answer in await bus.request_all(subjects.list_connections(), b"{}", within=2.0):
                names.add(msgspec.json.decode(answer)["server"]["name"])
            return names >= set(world.cluster.servers)

        await eventually(have_answered, within=PATIENCE)
    port.release()
    assert names == set(world.cluster.servers)
