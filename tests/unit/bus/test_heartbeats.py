"""Heartbeats and silence, in virtual time."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from libs.bus.heartbeats import Heartbeat, HeartbeatMonitor, IgnoredBeat
from libs.bus.reporter import RECONNECT_SPREAD
from libs.contracts import subjects
from libs.contracts.commands import Order
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import BEAT_PERIOD, SILENT_AFTER, Beat
from libs.runtime.tasks import Tasks
from libs.testing.bus import BusFaults, LocalBus, LocalServer
from libs.testing.simulation import Sim, make_env
from tests.unit.bus.simulated import in_simulation

READER = Identity(writer=Writer.SCHEDULER)
AGENT = Identity(writer=Writer.DRIVER, node="a.example")


def beat(identity: Identity = AGENT, *, boot: str = "boot-1", op: int = 0) -> Beat:
    return Beat(
        node=identity.node,
        node_uid=f"uid-{identity.node}",
        boot_id=boot,
        component=identity.writer,
        knows=("idle", "swap"),
        epoch=1,
        token=2,
        op=op,
    )


class World:
    """A server, a monitor, and agents whose heartbeats run."""

    def __init__(self, sim: Sim, faults: BusFaults | None = None) -> None:
        self.sim = sim
        self.clock = sim.clock
        self.server = LocalServer(env=sim.env("bus"), faults=faults)
        self.reader = self.server.connect(READER)
        self.monitor = HeartbeatMonitor(bus=self.reader, clock=sim.clock, cluster="default")
        self.sent: list[float] = []
        self.tasks = Tasks("heartbeats", failed=lambda fatal: pytest.fail(str(fatal)))
        self.server.add_tracer(
            lambda record: (
                self.sent.append(sim.clock.monotonic()) if record.action == "publish" else None
            )
        )

    def agent(self, identity: Identity = AGENT, **of: Any) -> LocalBus:
        bus = self.server.connect(identity)
        heartbeat = Heartbeat(
            bus=bus,
            env=make_env(clock=self.clock, random=self.sim.random_for(str(identity))),
            make_beat=lambda: beat(identity, **of),
        )
        self.tasks.forever(str(identity), heartbeat.run())
        return bus


@asynccontextmanager
async def enter_world(sim: Sim, faults: BusFaults | None = None) -> AsyncGenerator[World]:
    world = World(sim, faults)
    async with world.monitor:
        try:
            yield world
        finally:
            await world.tasks.close()


in_virtual_time = in_simulation(enter_world)


@in_virtual_time
async def test_a_component_beats_at_once_and_then_every_period(world: World) -> None:
    world.agent()
    await world.clock.sleep(10 * BEAT_PERIOD)
    gaps = [after - before for before, after in zip(world.sent, world.sent[1:], strict=False)]
    assert world.sent[0] == 0.0
    assert 8 <= len(gaps) <= 12
    assert all(0.8 * BEAT_PERIOD <= gap <= 1.2 * BEAT_PERIOD for gap in gaps)
    assert len(set(gaps)) == len(gaps)


@in_virtual_time
async def test_a_component_beats_soon_after_a_reconnect(world: World) -> None:
    world.server.cut(AGENT)
    world.agent()
    await world.clock.sleep(1_000.0)
    assert world.sent == []
    world.server.restore(AGENT)
    await world.clock.sleep(RECONNECT_SPREAD)
    assert len(world.sent) == 1
    world.server.cut(AGENT)
    await world.clock.sleep(5.0)
    world.server.restore(AGENT)
    await world.clock.sleep(RECONNECT_SPREAD)
    assert len(world.sent) == 2


@in_virtual_time
async def test_a_fleet_spreads_its_beats_after_a_reconnect(world: World) -> None:
    for index in range(20):
        world.agent(Identity(writer=Writer.DRIVER, node=f"node-{index}"))
    await world.clock.sleep(10.0)
    world.sent.clear()
    world.server.stop()
    world.server.start()
    reconnected = world.clock.monotonic()
    await world.clock.sleep(RECONNECT_SPREAD)
    assert len(set(world.sent)) == 20
    assert max(world.sent) - reconnected > RECONNECT_SPREAD / 2


@in_virtual_time
async def test_the_last_beat_has_its_age_and_order(world: World) -> None:
    world.agent(op=5)
    await world.clock.sleep(10.0)
    last = world.monitor.last("a.example", "driver")
    assert last is not None
    assert last.beat == beat(op=5)
    assert last.age == pytest.approx(10.0)
    assert last.order == Order(2, 5)
    assert last.beat.knows == ("idle", "swap")
    assert world.monitor.last("a.example", "validator") is None


@in_virtual_time
async def test_silence_is_three_periods_after_the_last_beat(world: World) -> None:
    bus = world.agent()
    await world.clock.sleep(1.0)
    bus.kill()
    assert not world.monitor.is_silent("a.example", "driver")
    await world.clock.sleep(SILENT_AFTER - 1.001)
    assert not world.monitor.is_silent("a.example", "driver")
    await world.clock.sleep(0.001)
    assert world.monitor.is_silent("a.example", "driver")


LOSSY = BusFaults(lost=0.3, repeated=0.3, delayed=0.5, delay=(0.0, 5.0))


@in_simulation(partial(enter_world, faults=LOSSY))
async def test_a_component_with_some_lost_beats_is_not_silent(world: World) -> None:
    world.agent()
    for _ in range(100):
        await world.clock.sleep(BEAT_PERIOD / 2)
        last = world.monitor.last("a.example", "driver")
        age = last.age if last else world.clock.monotonic()
        assert world.monitor.is_silent("a.example", "driver") == (age >= SILENT_AFTER)


@in_virtual_time
async def test_an_outage_of_the_bus_does_not_count_as_silence(world: World) -> None:
    bus = world.agent()
    await world.clock.sleep(1.0)
    bus.kill()
    world.server.cut(READER)
    await world.clock.sleep(100 * SILENT_AFTER)
    assert not world.monitor.is_silent("a.example", "driver")
    assert not world.monitor.is_silent("never.seen", "driver")
    world.server.restore(READER)
    await world.clock.sleep(SILENT_AFTER - 2.0)
    assert not world.monitor.is_silent("a.example", "driver")
    await world.clock.sleep(2.0)
    assert world.monitor.is_silent("a.example", "driver")
    last = world.monitor.last("a.example", "driver")
    assert last is not None
    assert last.age == pytest.approx(101 * SILENT_AFTER + 1.0)


@in_virtual_time
async def test_an_unseen_component_is_silent_three_periods_after_the_first_query(
    world: World,
) -> None:
    await world.clock.sleep(1_000.0)
    assert not world.monitor.is_silent("a.example", "driver")
    await world.clock.sleep(SILENT_AFTER - 0.001)
    assert not world.monitor.is_silent("a.example", "driver")
    await world.clock.sleep(0.001)
    assert world.monitor.is_silent("a.example", "driver")


@in_virtual_time
async def test_watchers_get_first_beats_and_new_boots(world: World) -> None:
    changes: list[tuple[str | None, str]] = []
    stop = world.monitor.on_change(
        lambda before, after: changes.append((before.boot_id if before else None, after.boot_id))
    )
    bus = world.server.connect(AGENT)
    subject = str(subjects.Beat(cluster="default", node="a.example", component="driver"))
    for boot in ("one", "one", "two", "two"):
        await bus.publish(subject, encode(beat(boot=boot)))
    await world.clock.sleep(1.0)
    assert changes == [(None, "one"), ("one", "two")]
    world.monitor.forget("a.example")
    assert world.monitor.last("a.example", "driver") is None
    await bus.publish(subject, encode(beat(boot="two")))
    await world.clock.sleep(1.0)
    assert changes[2:] == [(None, "two")]
    stop()
    await bus.publish(subject, encode(beat(boot="three")))
    await world.clock.sleep(1.0)
    assert len(changes) == 3


@in_virtual_time
async def test_malformed_and_foreign_beats_are_counted_and_ignored(world: World) -> None:
    bus = world.server.connect(AGENT)
    subject = str(subjects.Beat(cluster="default", node="a.example", component="driver"))
    await bus.publish(subject, b"\xff{")
    await bus.publish(subject, encode(beat()).replace(b'"v":1', b'"v":2'))
    await bus.publish(subject, encode(beat(Identity(writer=Writer.DRIVER, node="b"))))
    await bus.publish(subject, encode(beat(Identity(writer=Writer.PLUGIN, node=AGENT.node))))
    await bus.publish(f"{subject}.more", encode(beat()))
    await bus.publish(subject, encode(beat()) + b" " * subjects.Beat.max_message)
    await world.clock.sleep(1.0)
    assert world.monitor.last("a.example", "driver") is None
    assert world.monitor.last("b", "driver") is None
    assert world.monitor.ignored == {
        IgnoredBeat.UNREADABLE: 3,
        IgnoredBeat.FOREIGN: 2,
        IgnoredBeat.TOO_LARGE: 1,
    }


@in_virtual_time
async def test_a_cancelled_heartbeat_stops_watching_the_link(world: World) -> None:
    world.agent()
    await world.clock.sleep(1.0)
    await world.tasks.close()
    world.sent.clear()
    world.server.stop()
    world.server.start()
    await world.clock.sleep(10 * BEAT_PERIOD)
    assert world.sent == []
