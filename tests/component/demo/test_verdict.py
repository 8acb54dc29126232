"""The audit of a demo with its printed lines, and the driverless nodes, from reports."""

import asyncio
from math import inf, nextafter
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from demo.paths import DemoPaths
from demo.promises import promises
from demo.verdict import (
    READER,
    DemoVerdict,
    DriverlessNodes,
    judge_run,
    observe_reports,
    verdict_lines,
    with_limits,
    with_report_delay,
)
from libs.audit import AuditJournal, AuditResult, PoolFacts, Violation
from libs.bus.journal import FileJournal
from libs.bus.permissions import permissions
from libs.bus.reporter import Reporter
from libs.contracts.facts import Facts, LoadedDriver
from libs.contracts.identities import Identity, Writer
from libs.contracts.journal import Entry, EntryPhase, Revision, Verb
from libs.contracts.message import encode
from libs.contracts.reports import Report, Usage
from libs.contracts.subjects import STREAMS
from libs.runtime.tasks import Tasks
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim, run

ENTRY = Entry(
    node="node-1",
    node_uid="u-1",
    boot_id="b-1",
    component="driver",
    epoch=1,
    token=1,
    op=1,
    command="quiesce",
    phase=EntryPhase.STARTED,
    time=10.0,
)
REVISION = Revision(
    revision=1, time=1.0, user="person", verb=Verb.CREATE, code=201, kind="ConfigMap", name="c"
)


@pytest.fixture
def paths(tmp_path: Path) -> DemoPaths:
    """The files of a minimal run."""
    found = DemoPaths(tmp_path)
    found.incidents("node-1").parent.mkdir()
    found.incidents("node-1").write_text("")
    found.revisions.write_bytes(encode(REVISION) + b"\n")
    return found


async def write_journal(paths: DemoPaths, *entries: Entry) -> None:
    path = paths.machine("node-1") / "var/lib/sluice/driver/journal"
    journal = FileJournal(path, run=asyncio.to_thread)
    await journal.open()
    for entry in entries:
        await journal.append(entry)


async def test_all_journals_are_read_and_a_good_run_passes(paths: DemoPaths) -> None:
    await write_journal(paths, ENTRY)
    found = await judge_run(paths, ["node-1"], events=(), pool_facts=(), faults=False)
    assert found.is_ok, list(verdict_lines(found))
    expected = "1 requests to the API server, 1 entries of agents' journals, 0 events"
    assert found.rests_on == expected
    assert list(verdict_lines(found))[-1] == "  all invariants that could be judged hold"


async def test_an_agents_journal_can_violate_an_invariant(paths: DemoPaths) -> None:
    """An op older than a started one is never started (docs/invariants.md#i2)."""
    newer = replace(ENTRY, token=2)
    older = replace(ENTRY, time=20.0)
    await write_journal(paths, newer, older)
    found = await judge_run(paths, ["node-1"], events=(), pool_facts=(), faults=False)
    assert {violation.invariant for violation in found.verdict.violations} == {"I2"}
    assert not found.is_ok


async def test_an_incident_on_a_machine_fails_the_run(paths: DemoPaths) -> None:
    paths.incidents("node-1").write_text("two drivers: node-1: one met another\n")
    found = await judge_run(paths, ["node-1"], events=(), pool_facts=(), faults=False)
    assert not found.is_ok
    assert "  VIOLATED  on a machine: two drivers: node-1: one met another" in verdict_lines(found)


def test_violations_and_unjudged_invariants_are_printed() -> None:
    broken = Violation(invariant="I1", node="node-1", message="two at a time")
    verdict = AuditResult(violations=(broken,), not_judged={"I10": "a run without injected faults"})
    found = promises(AuditJournal(revisions=(), entries=(), events=()), verdict)
    demo = DemoVerdict(verdict=verdict, promises=found, incidents=(), rests_on="much")
    lines = [" ".join(line.split()) for line in verdict_lines(demo)]
    assert lines[0] == "read: much"
    assert lines[1].startswith("I1 Budget VIOLATED 1x ")
    assert lines[10] == "I10 Frugal not judged requires a run without injected faults"
    assert lines[-1] == "VIOLATED I1 (node-1): two at a time"


UP = Facts(driver=LoadedDriver(version="580.95.05"))
DOWN = Facts()


def report(node: str, body: Facts | Usage, *, by: Writer = Writer.DRIVER) -> Report:
    return Report.of(body, node=node, node_uid=f"uid-{node}", boot_id="b", component=by, at=1.0)


def driverless_nodes(driverless: DriverlessNodes) -> list[tuple[float, set[str]]]:
    return [(facts.since, set(facts.driverless)) for facts in driverless.pool_facts]


def test_a_node_is_driverless_until_its_driver_is_back() -> None:
    driverless = DriverlessNodes(pool="p", max_unavailable=1)
    for time, received in (
        (10.0, report("a", UP)),
        (11.0, report("b", UP)),
        (20.0, report("a", DOWN)),
        (21.0, report("a", DOWN)),
        (30.0, report("b", DOWN)),
        (40.0, report("a", UP)),
    ):
        driverless.observe(received, at=time)
    assert driverless_nodes(driverless) == [
        (0.0, set()),
        (20.0, {"uid-a"}),
        (30.0, {"uid-a", "uid-b"}),
        (40.0, {"uid-b"}),
    ]
    assert {(facts.key, facts.max_unavailable) for facts in driverless.pool_facts} == {("p", 1)}


def test_only_facts_of_driver_agents_count() -> None:
    driverless = DriverlessNodes(pool="p", max_unavailable=1)
    driverless.observe(report("b", UP), at=11.0)
    driverless.observe(report("b", DOWN, by=Writer.DISCOVERY), at=12.0)
    driverless.observe(report("b", Usage()), at=13.0)
    unreadable = msgspec.structs.replace(report("b", Usage()), body=msgspec.Raw(b"[]"))
    driverless.observe(unreadable, at=14.0)
    assert driverless_nodes(driverless) == [(0.0, set())]


def test_nodes_are_doubtful_until_every_reader_has_the_report() -> None:
    driverless = DriverlessNodes(pool="p", max_unavailable=1)
    for time, body in ((10.0, UP), (20.0, DOWN), (40.0, UP)):
        driverless.observe(report("a", body), at=time)
    times = ((5.0, "Node"), (35.0, "Node"), (38.0, "Pod"), (45.0, "Node"))
    revisions = [
        Revision(
            revision=number, time=time, user="u", verb=Verb.UPDATE, code=200, kind=kind, name="n"
        )
        for number, (time, kind) in enumerate(times)
    ]
    a, empty = frozenset({"uid-a"}), frozenset[str]()
    marked = with_report_delay(driverless.pool_facts, revisions)
    assert [(facts.since, facts.driverless, facts.doubtful) for facts in marked] == [
        (0.0, empty, empty),
        (20.0, empty, a),
        (22.0, a, empty),
        (nextafter(35.0, inf), empty, a),
        (40.0, empty, a),
        (42.0, empty, empty),
    ]
    assert [facts.since for facts in with_report_delay(driverless.pool_facts, revisions[:1])] == [
        *(0.0, nextafter(5.0, inf), 20.0, 22.0, 40.0, 42.0)
    ]


def test_reports_on_the_bus_are_observed() -> None:
    async def main(sim: Sim) -> list[tuple[float, set[str]]]:
        server = LocalServer(env=sim.env())
        scheduler = server.connect(Identity(writer=Writer.SCHEDULER))
        for stream in STREAMS:
            await scheduler.ensure(stream)
        agent = server.connect(Identity(writer=Writer.DRIVER, node="a"))
        reader = server.connect(
            Identity(writer=READER), permissions=permissions(Identity(writer=READER))
        )
        reporter = Reporter(bus=agent, env=sim.env(), node_uid="uid-a", boot_id="b")
        tasks = Tasks("test", failed=lambda _: None)
        tasks.forever("reporter", reporter.run())
        driverless = DriverlessNodes(pool="p", max_unavailable=1)
        started = sim.clock.now()
        async with observe_reports(driverless, bus=reader, clock=sim.clock):
            for body in (UP, DOWN):
                reporter.report(body)
                await sim.clock.sleep(100.0)
        await tasks.close()
        for bus in (scheduler, agent, reader):
            bus.kill()
        return [
            (facts.since - started if facts.since else 0.0, set(facts.driverless))
            for facts in driverless.pool_facts
        ]

    first, second = run(main, seed=1)
    assert first == (0.0, set())
    assert second[1] == {"uid-a"}
    assert 100.0 <= second[0] < 101.0


def test_the_limit_that_a_person_writes_counts_from_then_on() -> None:
    facts = [
        PoolFacts(key="nvidiadriver-a", since=0.0, max_unavailable=3),
        PoolFacts(key="nvidiadriver-a", since=20.0, max_unavailable=3, driverless=frozenset("x")),
    ]
    written = [
        Revision(
            revision=number,
            time=time,
            user="u",
            verb=Verb.PATCH,
            code=200,
            kind="NVIDIADriver",
            name=name,
            changed={"spec.upgradePolicy.maxUnavailable": (None, limit)},
        )
        for number, (time, name, limit) in enumerate(((1.0, "a", 3), (5.0, "b", 9), (30.0, "a", 1)))
    ]
    found = with_limits(facts, written)
    assert [(each.since, each.max_unavailable, set(each.driverless)) for each in found] == [
        (0.0, 3, set()),
        (20.0, 3, {"x"}),
        (30.0, 1, {"x"}),
    ]
