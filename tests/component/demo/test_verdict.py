"""What the judge is shown, and how his word is told."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from demo.places import Places
from demo.verdict import Found, judged, lines
from libs.audit import Verdict, Violation
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
def places(tmp_path: Path) -> Places:
    """After a run in which little happened."""
    found = Places(tmp_path)
    found.oddities("node-1").parent.mkdir()
    found.oddities("node-1").write_text("")
    found.revisions.write_bytes(encode(REVISION) + b"\n")
    return found


async def kept(places: Places, *entries: Entry) -> None:
    path = places.machine("node-1") / "var/lib/sluice/driver/journal"
    journal = FileJournal(path, run=asyncio.to_thread)
    await journal.open()
    for entry in entries:
        await journal.append(entry)


async def test_all_sources_are_read_and_a_good_run_is_well(places: Places) -> None:
    await kept(places, ENTRY)
    found = await judged(places, ["node-1"], events=(), testimony=(), faults=False)
    assert found.well, list(lines(found))
    told = "1 requests to the API server, 1 lines of agents' journals, 0 events"
    assert found.rests_on == told
    assert list(lines(found))[-1] == "  every promise that it can judge was kept"


async def test_an_agents_journal_can_break_a_promise(places: Places) -> None:
    """An order that is older than one that was begun is never begun (docs/invariants.md#i2)."""
    newer = replace(ENTRY, token=2)
    older = replace(ENTRY, time=20.0)
    await kept(places, newer, older)
    found = await judged(places, ["node-1"], events=(), testimony=(), faults=False)
    assert {one.invariant for one in found.verdict.violations} == {"I2"}
    assert not found.well


async def test_what_must_never_happen_on_a_machine_is_no_good_run(places: Places) -> None:
    places.oddities("node-1").write_text("two drivers: node-1: one met another\n")
    found = await judged(places, ["node-1"], events=(), testimony=(), faults=False)
    assert not found.well
    assert "  BROKEN  on a machine: two drivers: node-1: one met another" in lines(found)


def test_what_was_broken_and_what_could_not_be_judged_is_said() -> None:
    broken = Violation(invariant="I1", node="node-1", message="two at a time")
    verdict = Verdict(violations=(broken,), unjudged={"I10": "a run without injected faults"})
    assert list(lines(Found(verdict=verdict, oddities=(), rests_on="much"))) == [
        "  it has read much",
        "  BROKEN  I1 (node-1): two at a time",
        "  not judged: I10, for want of a run without injected faults",
    ]
