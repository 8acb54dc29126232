"""The report cache in virtual time: how current it is, and what it drops."""

import math
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from libs.bus.port import BusUnavailable
from libs.bus.reports import IgnoredReport, ReportCache
from libs.contracts import subjects
from libs.contracts.facts import Facts
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import Report, StateKind
from libs.contracts.subjects import STATE
from libs.testing.bus import BusFaults, LocalBus, LocalServer
from libs.testing.simulation import Sim, run

READER = Identity(writer=Writer.SCHEDULER)
AGENT = Identity(writer=Writer.DRIVER, node="a.example")


def facts(machine: str, *, node: str = "a.example", at: float = 1.0) -> Report:
    return Report.of(
        Facts(machine=machine),
        node=node,
        node_uid="uid",
        boot_id="boot",
        component="driver",
        at=at,
    )


def subject_of(node: str = "a.example", kind: str = "facts", asker: str = "") -> str:
    state = subjects.State(cluster="default", node=node, component="driver", kind=kind, asker=asker)
    return str(state)


class World:
    """A server with STATE, a cache, and somebody who writes what he likes."""

    def __init__(self, sim: Sim, faults: BusFaults | None) -> None:
        self.clock = sim.clock
        self.server = LocalServer(env=sim.env("bus"), faults=faults)
        self.writer: LocalBus = self.server.connect(AGENT)
        self.cache = ReportCache(
            bus=self.server.connect(READER), clock=sim.clock, cluster="default"
        )
        self.changes: list[tuple[str, str | None, str | None]] = []
        self.cache.on_change(self._changed)

    def _changed(self, of: subjects.State, before: Report | None, after: Report | None) -> None:
        self.changes.append((of.node, machine(before), machine(after)))

    async def write(self, data: bytes | Report, subject: str = "") -> None:
        sent = data if isinstance(data, bytes) else encode(data)
        await self.writer.store(STATE, subject or subject_of(), sent)

    def machine(self, node: str = "a.example") -> str | None:
        return machine(self.cache.get(node, "driver", "facts"))


def machine(report: Report | None) -> str | None:
    if report is None:
        return None
    body = report.open()
    assert isinstance(body, Facts)
    return body.machine


@asynccontextmanager
async def world(sim: Sim, faults: BusFaults | None = None) -> AsyncGenerator[World]:
    made = World(sim, faults)
    await made.writer.ensure(STATE)
    async with made.cache:
        await made.cache.synced()
        yield made


def in_virtual_time(story: Callable[[Sim], Coroutine[Any, Any, None]]) -> None:
    run(story, seed=7)


def test_age_and_stale_seconds_grow_while_the_cache_is_not_current() -> None:
    async def story(sim: Sim) -> None:
        server = LocalServer(env=sim.env())
        bus = server.connect(READER)
        await bus.ensure(STATE)
        server.stop()
        async with ReportCache(bus=bus, clock=sim.clock, cluster="default") as cache:
            began = sim.clock.monotonic()
            await sim.clock.sleep(10.0)
            assert cache.age == math.inf
            assert cache.stale_seconds == pytest.approx(10.0)
            server.start()
            await cache.synced()
            assert cache.age == 0.0
            await sim.clock.sleep(100.0)
            assert cache.age == 0.0
            assert cache.stale_seconds == pytest.approx(10.0)
            server.stop()
            await sim.clock.sleep(5.0)
            assert cache.age == pytest.approx(5.0)
            assert cache.stale_seconds == pytest.approx(15.0)
            server.start()
            await sim.clock.sleep(1.0)
            assert cache.age == 0.0
            assert cache.stale_seconds == pytest.approx(15.0)
            assert sim.clock.monotonic() - began == pytest.approx(116.0)

    in_virtual_time(story)


def test_reports_are_kept_during_an_outage() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            await w.write(facts("one"))
            await sim.clock.sleep(1.0)
            w.server.cut(READER)
            await sim.clock.sleep(86_400.0)
            assert w.machine() == "one"
            assert w.changes == [("a.example", None, "one")]

    in_virtual_time(story)


def test_reports_that_a_complete_reading_did_not_repeat_are_dropped() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            await w.write(facts("one"))
            await w.write(facts("other", node="b"), subject_of("b"))
            await sim.clock.sleep(1.0)
            w.server.cut(READER)
            await w.writer.purge(STATE, subject_of())
            w.server.restore(READER)
            await sim.clock.sleep(1.0)
            assert w.machine() is None
            assert w.machine("b") == "other"
            assert list(w.cache.nodes()) == ["b"]
            assert w.changes[2:] == [("a.example", "one", None)]

    in_virtual_time(story)


def test_reports_of_a_lost_stream_are_dropped_only_after_rereading() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            await w.write(facts("one"))
            await sim.clock.sleep(1.0)
            w.server.lose_stream(STATE, remade=True)
            assert w.machine() == "one"
            await sim.clock.sleep(60.0)
            assert w.machine() is None
            await w.write(facts("two"))
            await sim.clock.sleep(1.0)
            assert w.machine() == "two"

    in_virtual_time(story)


def test_only_changed_bytes_call_watchers() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            for name in ("one", "one", "two", "two"):
                await w.write(facts(name))
            await sim.clock.sleep(1.0)
            w.server.cut(READER)
            w.server.restore(READER)
            await sim.clock.sleep(1.0)
            assert w.changes == [("a.example", None, "one"), ("a.example", "one", "two")]

    in_virtual_time(story)


def test_a_message_of_another_version_drops_the_report() -> None:
    """Its writer says something else by now: what it said before is no evidence any more."""

    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            await w.write(facts("one"))
            await w.write(encode(facts("two")).replace(b'"v":1', b'"v":2'))
            await sim.clock.sleep(1.0)
            assert w.machine() is None
            assert w.cache.ignored == {IgnoredReport.OTHER_VERSION: 1}
            assert w.changes == [("a.example", None, "one"), ("a.example", "one", None)]

    in_virtual_time(story)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"", IgnoredReport.UNREADABLE),
        (b"\xff\xfe", IgnoredReport.UNREADABLE),
        (b'{"v":1,"node":"a.example"}', IgnoredReport.UNREADABLE),
        (encode(facts("two", node="b")), IgnoredReport.FOREIGN),
        (encode(facts("two")).replace(b'"driver"', b'"plugin"'), IgnoredReport.FOREIGN),
        (encode(facts("two")).replace(b'"facts"', b'"usage"'), IgnoredReport.FOREIGN),
    ],
)
def test_malformed_messages_are_counted_and_the_last_report_stays(
    bad: bytes, why: IgnoredReport
) -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            await w.write(facts("one"))
            await w.write(bad)
            await sim.clock.sleep(1.0)
            assert w.machine() == "one"
            assert w.cache.ignored == {why: 1}
            assert subject_of() in w.cache.last_ignored
            w.server.cut(READER)
            w.server.restore(READER)
            await sim.clock.sleep(1.0)
            assert w.machine() == "one"
            assert w.cache.ignored == {why: 2}
            await w.write(facts("three"))
            await sim.clock.sleep(1.0)
            assert w.changes == [("a.example", None, "one"), ("a.example", "one", "three")]

    in_virtual_time(story)


def test_a_malformed_first_message_is_ignored() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            await w.write(facts("two", node="b"))
            await sim.clock.sleep(1.0)
            assert list(w.cache.nodes()) == []
            assert w.cache.get("b", "driver", "facts") is None

    in_virtual_time(story)


def test_answers_to_checks_are_kept_by_asker() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            await w.write(facts("plain"))
            await w.write(facts("asked"), subject_of(asker="scheduler"))
            await sim.clock.sleep(1.0)
            get = w.cache.get
            assert machine(get("a.example", "driver", StateKind.FACTS)) == "plain"
            assert machine(get("a.example", "driver", "facts", "scheduler")) == "asked"
            assert get("a.example", "driver", "facts", "other") is None
            seen = [(of.asker, machine(report)) for of, report in w.cache.reports("a.example")]
            assert seen == [("", "plain"), ("scheduler", "asked")]

    in_virtual_time(story)


def test_a_forgotten_node_returns_with_its_next_report() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            await w.write(facts("one"))
            await sim.clock.sleep(1.0)
            w.cache.forget("a.example")
            w.cache.forget("never.known")
            assert list(w.cache.nodes()) == []
            await w.write(facts("one"))
            await sim.clock.sleep(1.0)
            assert w.changes == [
                ("a.example", None, "one"),
                ("a.example", "one", None),
                ("a.example", None, "one"),
            ]

    in_virtual_time(story)


def test_another_clusters_state_is_ignored() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            elsewhere = subjects.State(
                cluster="other", node="a.example", component="driver", kind="facts"
            )
            await w.write(facts("one"), str(elsewhere))
            await sim.clock.sleep(1.0)
            assert list(w.cache.nodes()) == []

    in_virtual_time(story)


def test_the_cache_converges_despite_faults() -> None:
    troubles = BusFaults(
        delayed=0.3, delay=(0.0, 3.0), between_drops=(5.0, 60.0), dropped=(0.5, 20.0)
    )

    async def story(sim: Sim) -> None:
        async with world(sim, troubles) as w:
            last: dict[str, str] = {}
            for index in range(200):
                node = f"node-{index % 7}"
                last[node] = str(index)
                while not await stored(w, facts(last[node], node=node), subject_of(node)):
                    await sim.clock.sleep(1.0)
                await sim.clock.sleep(sim.random.uniform(0.0, 3.0))
            while w.cache.age or {n: w.machine(n) for n in last} != last:
                await sim.clock.sleep(1.0)
            for node in last:
                values = [after for of, _, after in w.changes if of == node and after]
                assert [int(value) for value in values] == sorted(int(value) for value in values)
            assert not w.cache.ignored

    in_virtual_time(story)


async def stored(w: World, report: Report, subject: str) -> bool:
    try:
        await w.write(report, subject)
    except BusUnavailable:
        return False
    return True
