"""Heartbeats and silence, in virtual time."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from libs.bus.heartbeats import RECONNECT_SPREAD, Heartbeat, HeartbeatMonitor, IgnoredBeat
from libs.contracts import subjects
from libs.contracts.commands import Order
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import BEAT_PERIOD, SILENT_AFTER, Beat
from libs.runtime.tasks import Tasks
from libs.testing.bus import BusFaults, LocalBus, LocalServer
from libs.testing.simulation import Sim, make_env, run

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
    """A server, a reader of beats, and agents whose pulses run."""

    def __init__(self, sim: Sim, faults: BusFaults | None = None) -> None:
        self.sim = sim
        self.clock = sim.clock
        self.server = LocalServer(env=sim.env("bus"), faults=faults)
        self.reader = self.server.connect(READER)
        self.pulses = HeartbeatMonitor(bus=self.reader, clock=sim.clock, cluster="default")
        self.sent: list[float] = []
        self.tasks = Tasks("pulses", failed=lambda fatal: pytest.fail(str(fatal)))
        self.server.add_tracer(
            lambda it: self.sent.append(sim.clock.monotonic()) if it.what == "publish" else None
        )

    def agent(self, identity: Identity = AGENT, **of: Any) -> LocalBus:
        bus = self.server.connect(identity)
        pulse = Heartbeat(
            bus=bus,
            env=make_env(clock=self.clock, random=self.sim.random_for(str(identity))),
            make_beat=lambda: beat(identity, **of),
        )
        self.tasks.forever(str(identity), pulse.run())
        return bus


@asynccontextmanager
async def world(sim: Sim, faults: BusFaults | None = None) -> AsyncGenerator[World]:
    made = World(sim, faults)
    async with made.pulses:
        try:
            yield made
        finally:
            await made.tasks.close()


def in_virtual_time(story: Callable[[Sim], Coroutine[Any, Any, None]]) -> None:
    run(story, seed=7)


def test_a_component_beats_at_once_and_then_every_period() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            w.agent()
            await sim.clock.sleep(10 * BEAT_PERIOD)
            gaps = [after - before for before, after in zip(w.sent, w.sent[1:], strict=False)]
            assert w.sent[0] == 0.0
            assert 8 <= len(gaps) <= 12
            assert all(0.8 * BEAT_PERIOD <= gap <= 1.2 * BEAT_PERIOD for gap in gaps)
            assert len(set(gaps)) == len(gaps)

    in_virtual_time(story)


def test_a_component_beats_soon_after_a_reconnect() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            w.server.cut(AGENT)
            w.agent()
            await sim.clock.sleep(1_000.0)
            assert w.sent == []
            w.server.restore(AGENT)
            await sim.clock.sleep(RECONNECT_SPREAD)
            assert len(w.sent) == 1
            w.server.cut(AGENT)
            await sim.clock.sleep(5.0)
            w.server.restore(AGENT)
            await sim.clock.sleep(RECONNECT_SPREAD)
            assert len(w.sent) == 2

    in_virtual_time(story)


def test_a_fleet_spreads_its_beats_after_a_reconnect() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            for index in range(20):
                w.agent(Identity(writer=Writer.DRIVER, node=f"node-{index}"))
            await sim.clock.sleep(10.0)
            w.sent.clear()
            w.server.stop()
            w.server.start()
            back = sim.clock.monotonic()
            await sim.clock.sleep(RECONNECT_SPREAD)
            assert len(set(w.sent)) == 20
            assert max(w.sent) - back > RECONNECT_SPREAD / 2

    in_virtual_time(story)


def test_the_last_beat_has_its_age_and_order() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            w.agent(op=5)
            await sim.clock.sleep(10.0)
            heard = w.pulses.last("a.example", "driver")
            assert heard is not None
            assert heard.beat == beat(op=5)
            assert heard.age == pytest.approx(10.0)
            assert heard.order == Order(2, 5)
            assert heard.beat.knows == ("idle", "swap")
            assert w.pulses.last("a.example", "validator") is None

    in_virtual_time(story)


def test_silence_is_three_periods_after_the_last_beat() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            bus = w.agent()
            await sim.clock.sleep(1.0)
            bus.kill()
            assert not w.pulses.is_silent("a.example", "driver")
            await sim.clock.sleep(SILENT_AFTER - 1.001)
            assert not w.pulses.is_silent("a.example", "driver")
            await sim.clock.sleep(0.001)
            assert w.pulses.is_silent("a.example", "driver")

    in_virtual_time(story)


def test_a_component_with_some_lost_beats_is_not_silent() -> None:
    async def story(sim: Sim) -> None:
        async with world(
            sim, BusFaults(lost=0.3, repeated=0.3, delayed=0.5, delay=(0.0, 5.0))
        ) as w:
            w.agent()
            for _ in range(100):
                await sim.clock.sleep(BEAT_PERIOD / 2)
                heard = w.pulses.last("a.example", "driver")
                ago = heard.age if heard else sim.clock.monotonic()
                assert w.pulses.is_silent("a.example", "driver") == (ago >= SILENT_AFTER)

    in_virtual_time(story)


def test_an_outage_of_the_bus_does_not_count_as_silence() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            bus = w.agent()
            await sim.clock.sleep(1.0)
            bus.kill()
            w.server.cut(READER)
            await sim.clock.sleep(100 * SILENT_AFTER)
            assert not w.pulses.is_silent("a.example", "driver")
            assert not w.pulses.is_silent("never.heard", "driver")
            w.server.restore(READER)
            await sim.clock.sleep(SILENT_AFTER - 2.0)
            assert not w.pulses.is_silent("a.example", "driver")
            await sim.clock.sleep(2.0)
            assert w.pulses.is_silent("a.example", "driver")
            heard = w.pulses.last("a.example", "driver")
            assert heard is not None
            assert heard.age == pytest.approx(101 * SILENT_AFTER + 1.0)

    in_virtual_time(story)


def test_an_unheard_component_is_silent_three_periods_after_the_first_query() -> None:
    """However long the reader has listened: a node that joins has had no time to speak."""

    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            await sim.clock.sleep(1_000.0)
            assert not w.pulses.is_silent("a.example", "driver")
            await sim.clock.sleep(SILENT_AFTER - 0.001)
            assert not w.pulses.is_silent("a.example", "driver")
            await sim.clock.sleep(0.001)
            assert w.pulses.is_silent("a.example", "driver")

    in_virtual_time(story)


def test_watchers_get_first_beats_and_new_boots() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            changes: list[tuple[str | None, str]] = []
            stop = w.pulses.on_change(
                lambda before, after: changes.append(
                    (before.boot_id if before else None, after.boot_id)
                )
            )
            bus = w.server.connect(AGENT)
            subject = str(subjects.Beat(cluster="default", node="a.example", component="driver"))
            for boot in ("one", "one", "two", "two"):
                await bus.publish(subject, encode(beat(boot=boot)))
            await sim.clock.sleep(1.0)
            assert changes == [(None, "one"), ("one", "two")]
            w.pulses.forget("a.example")
            assert w.pulses.last("a.example", "driver") is None
            await bus.publish(subject, encode(beat(boot="two")))
            await sim.clock.sleep(1.0)
            assert changes[2:] == [(None, "two")]
            stop()
            await bus.publish(subject, encode(beat(boot="three")))
            await sim.clock.sleep(1.0)
            assert len(changes) == 3

    in_virtual_time(story)


def test_malformed_and_foreign_beats_are_counted_and_ignored() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            bus = w.server.connect(AGENT)
            subject = str(subjects.Beat(cluster="default", node="a.example", component="driver"))
            await bus.publish(subject, b"\xff{")
            await bus.publish(subject, encode(beat()).replace(b'"v":1', b'"v":2'))
            await bus.publish(subject, encode(beat(Identity(writer=Writer.DRIVER, node="b"))))
            await bus.publish(
                subject, encode(beat(Identity(writer=Writer.PLUGIN, node=AGENT.node)))
            )
            await bus.publish(f"{subject}.more", encode(beat()))
            await sim.clock.sleep(1.0)
            assert w.pulses.last("a.example", "driver") is None
            assert w.pulses.last("b", "driver") is None
            assert w.pulses.ignored == {IgnoredBeat.UNREADABLE: 3, IgnoredBeat.FOREIGN: 2}

    in_virtual_time(story)


def test_a_cancelled_heartbeat_stops_watching_the_link() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            w.agent()
            await sim.clock.sleep(1.0)
            await w.tasks.close()
            w.sent.clear()
            w.server.stop()
            w.server.start()
            await sim.clock.sleep(10 * BEAT_PERIOD)
            assert w.sent == []

    in_virtual_time(story)
