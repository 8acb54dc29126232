"""The audit of a demo, and its printed lines."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from demo.paths import DemoPaths
from demo.verdict import DemoVerdict, judge_run, verdict_lines
from libs.audit import AuditResult, Violation
from libs.bus.journal import FileJournal
from libs.contracts.journal import Entry, EntryPhase, Revision, Verb
from libs.contracts.message import encode

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
    """An order that is older than one that was begun is never begun (docs/invariants.md#i2)."""
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
    assert list(verdict_lines(DemoVerdict(verdict=verdict, oddities=(), rests_on="much"))) == [
        "  read: much",
        "  VIOLATED  I1 (node-1): two at a time",
        "  not judged: I10 (requires a run without injected faults)",
    ]
