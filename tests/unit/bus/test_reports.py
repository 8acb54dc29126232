"""The report cache in virtual time: how current it is, and what it drops."""

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from functools import partial

import pytest
from msgspec.structs import replace

from libs.bus.port import BusUnavailable
from libs.bus.rates import WINDOW
from libs.bus.recreated import ALL_REPEATED
from libs.bus.reports import MOST_REPORTS, IgnoredReport, ReportCache
from libs.contracts import subjects
from libs.contracts.facts import Facts
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import Refusal, RefusalCode, Report, StateKind
from libs.contracts.subjects import STATE
from libs.testing.bus import BusFaults, LocalBus, LocalServer
from libs.testing.simulation import Sim
from tests.unit.bus.simulated import in_simulation

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


def subject_of(
    node: str = "a.example", kind: str = "facts", asker: str = "", component: str = "driver"
) -> str:
    parts = {"cluster": "default", "node": node, "component": component}
    return str(subjects.State(**parts, kind=kind, asker=asker))


class World:
    """A server with STATE, a cache, and a writer."""

    def __init__(self, sim: Sim, faults: BusFaults | None) -> None:
        self.sim = sim
        self.clock = sim.clock
        self.server = LocalServer(env=sim.env("bus"), faults=faults)
        self.writer: LocalBus = self.server.connect(AGENT)
        self.cache = ReportCache(
            bus=self.server.connect(READER), clock=sim.clock, cluster="default"
        )
        self.changes: list[tuple[str, str | None, str | None]] = []
        self.cache.on_change(self._changed)

    def _changed(self, of: subjects.State, before: Report | None, after: Report | None) -> None:
        if of.kind == StateKind.FACTS:
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


def message(report: Report | None) -> str:
    assert report is not None
    body = report.open()
    assert isinstance(body, Refusal)
    return body.message


@asynccontextmanager
async def enter_world(sim: Sim, faults: BusFaults | None = None) -> AsyncGenerator[World]:
    world = World(sim, faults)
    await world.writer.ensure(STATE)
    async with world.cache:
        await world.cache.synced()
        yield world


in_virtual_time = in_simulation(enter_world)


@in_simulation(nullcontext)
async def test_age_and_stale_seconds_grow_while_the_cache_is_not_current(sim: Sim) -> None:
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


@in_virtual_time
async def test_reports_that_a_complete_reading_did_not_repeat_are_dropped(world: World) -> None:
    await world.write(facts("one"))
    await world.write(facts("other", node="b"), subject_of("b"))
    await world.clock.sleep(1.0)
    world.server.cut(READER)
    await world.writer.purge(STATE, subject_of())
    world.server.restore(READER)
    await world.clock.sleep(1.0)
    assert world.machine() is None
    assert world.machine("b") == "other"
    assert list(world.cache.nodes()) == ["b"]
    assert world.changes[2:] == [("a.example", "one", None)]


@in_virtual_time
async def test_a_stream_created_again_takes_nothing_back_before_agents_have_repeated_it(
    world: World,
) -> None:
    await world.write(facts("one"))
    await world.write(facts("other", node="b"), subject_of("b"))
    await world.clock.sleep(1.0)
    world.server.lose_stream(STATE, remade=True)
    await world.clock.sleep(60.0)
    assert world.cache.age == 0.0
    assert (world.machine(), world.machine("b")) == ("one", "other")
    await world.write(facts("other", node="b"), subject_of("b"))
    world.server.cut(READER)
    world.server.restore(READER)
    await world.clock.sleep(1.0)
    assert (world.machine(), world.machine("b")) == ("one", "other")
    await world.clock.sleep(ALL_REPEATED)
    world.server.cut(READER)
    world.server.restore(READER)
    await world.clock.sleep(1.0)
    assert (world.machine(), world.machine("b")) == (None, "other")


@pytest.mark.parametrize(
    ("subject", "report", "why"),
    [
        (subject_of(kind="invented"), facts("x"), IgnoredReport.UNKNOWN),
        (subject_of(kind="evidence"), facts("x"), IgnoredReport.UNKNOWN),
        (subject_of(asker="scheduler"), facts("x"), IgnoredReport.UNKNOWN),
        (subject_of(kind="holders", asker="invented"), facts("x"), IgnoredReport.UNKNOWN),
        (subject_of(component="invented"), facts("x"), IgnoredReport.UNKNOWN),
        (subject_of(), facts("x" * STATE.max_message), IgnoredReport.TOO_LARGE),
    ],
)
@in_virtual_time
async def test_only_kinds_and_sizes_of_the_contracts_are_kept(
    world: World, subject: str, report: Report, why: IgnoredReport
) -> None:
    larger = replace(STATE, max_message=2 * STATE.max_message)
    await world.writer.ensure(larger)
    await world.writer.store(larger, subject, encode(report))
    await world.clock.sleep(1.0)
    assert list(world.cache.nodes()) == []
    assert world.cache.ignored == {why: 1}


@in_virtual_time
async def test_of_a_flood_of_reports_few_are_read_and_the_last_counts(world: World) -> None:
    for number in range(200):
        await world.write(facts(str(number)))
    await world.write(facts("other", node="b"), subject_of("b"))
    await world.clock.sleep(2 * WINDOW)
    assert len(world.changes) <= 2 * MOST_REPORTS + 2
    assert (world.machine(), world.machine("b")) == ("199", "other")
    assert world.cache.flood_rate("a.example", "driver") > MOST_REPORTS
    assert world.cache.flood_rate("b", "driver") == 0.0


@in_virtual_time
async def test_a_flood_brings_back_no_report_of_a_deleted_node(world: World) -> None:
    for number in range(200):
        await world.write(facts(str(number)))
    while not world.cache.rates.dropped:
        await world.clock.sleep(0.01)
    world.server.cut(AGENT)
    world.cache.forget("a.example")
    await world.clock.sleep(2 * WINDOW)
    assert list(world.cache.nodes()) == []


@in_virtual_time
async def test_only_changed_bytes_call_watchers(world: World) -> None:
    for name in ("one", "one", "two", "two"):
        await world.write(facts(name))
    await world.clock.sleep(1.0)
    world.server.cut(READER)
    world.server.restore(READER)
    await world.clock.sleep(1.0)
    assert world.changes == [("a.example", None, "one"), ("a.example", "one", "two")]


@in_virtual_time
async def test_a_message_of_another_version_drops_the_report(world: World) -> None:
    await world.write(facts("one"))
    await world.write(encode(facts("two")).replace(b'"v":1', b'"v":2'))
    await world.clock.sleep(1.0)
    assert world.machine() is None
    assert world.cache.ignored == {IgnoredReport.OTHER_VERSION: 1}
    assert world.changes == [("a.example", None, "one"), ("a.example", "one", None)]


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
@in_virtual_time
async def test_malformed_messages_are_counted_and_the_last_report_stays(
    world: World, bad: bytes, why: IgnoredReport
) -> None:
    await world.write(facts("one"))
    await world.write(bad)
    await world.clock.sleep(1.0)
    assert world.machine() == "one"
    assert world.cache.ignored == {why: 1}
    world.server.cut(READER)
    world.server.restore(READER)
    await world.clock.sleep(1.0)
    assert world.machine() == "one"
    assert world.cache.ignored == {why: 2}
    await world.write(facts("three"))
    await world.clock.sleep(1.0)
    assert world.changes == [("a.example", None, "one"), ("a.example", "one", "three")]


@in_virtual_time
async def test_a_malformed_first_message_is_ignored(world: World) -> None:
    await world.write(facts("two", node="b"))
    await world.clock.sleep(1.0)
    assert list(world.cache.nodes()) == []
    assert world.cache.get("b", "driver", "facts") is None


@in_virtual_time
async def test_answers_to_checks_are_kept_by_asker(world: World) -> None:
    for text, asker in (("plain", ""), ("asked", "scheduler")):
        refusal = Refusal(code=RefusalCode.EXPIRED, message=text)
        report = Report.of(
            refusal, node="a.example", node_uid="uid", boot_id="boot", component="driver", at=1.0
        )
        await world.write(report, subject_of(kind="refusal", asker=asker))
    await world.clock.sleep(1.0)
    reports = world.cache.reports("a.example")
    assert [(state.asker, message(report)) for state, report in reports] == [
        ("", "plain"),
        ("scheduler", "asked"),
    ]
    get = world.cache.get
    assert message(get("a.example", "driver", StateKind.REFUSAL)) == "plain"
    assert message(get("a.example", "driver", "refusal", "scheduler")) == "asked"
    assert get("a.example", "driver", "refusal", "driver-cluster") is None


@in_virtual_time
async def test_a_forgotten_node_returns_with_its_next_report(world: World) -> None:
    await world.write(facts("one"))
    await world.clock.sleep(1.0)
    world.cache.forget("a.example")
    world.cache.forget("never.known")
    assert list(world.cache.nodes()) == []
    await world.write(facts("one"))
    await world.clock.sleep(1.0)
    assert world.changes == [
        ("a.example", None, "one"),
        ("a.example", "one", None),
        ("a.example", None, "one"),
    ]


@in_virtual_time
async def test_another_clusters_state_is_ignored(world: World) -> None:
    elsewhere = subjects.State(cluster="other", node="a.example", component="driver", kind="facts")
    await world.write(facts("one"), str(elsewhere))
    await world.clock.sleep(1.0)
    assert list(world.cache.nodes()) == []


FAULTS = BusFaults(delayed=0.3, delay=(0.0, 3.0), between_drops=(5.0, 60.0), dropped=(0.5, 20.0))


@in_simulation(partial(enter_world, faults=FAULTS))
async def test_the_cache_converges_despite_faults(world: World) -> None:
    last: dict[str, str] = {}
    for index in range(200):
        node = f"node-{index % 7}"
        last[node] = str(index)
        while not await stored(world, facts(last[node], node=node), subject_of(node)):
            await world.clock.sleep(1.0)
        await world.clock.sleep(world.sim.random.uniform(0.0, 3.0))
    while world.cache.age or {node: world.machine(node) for node in last} != last:
        await world.clock.sleep(1.0)
    for node in last:
        values = [int(after) for of, _, after in world.changes if of == node and after]
        assert values == sorted(values)
    assert not world.cache.ignored


async def stored(world: World, report: Report, subject: str) -> bool:
    try:
        await world.write(report, subject)
    except BusUnavailable:
        return False
    return True
