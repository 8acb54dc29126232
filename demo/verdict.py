"""The audit of a finished demo, over the journals of the API server, the agents and the bus."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from demo.driverless import with_report_delay
from demo.node_agents import journal_path
from demo.paths import DemoPaths
from libs.audit import AuditJournal, AuditResult, PoolFacts, judge
from libs.bus.events import RecordedEvent, read_events
from libs.bus.journal import FileJournal
from libs.bus.port import Bus
from libs.contracts.events import Event
from libs.contracts.identities import COMPONENTS
from libs.contracts.journal import Entry, Revision
from libs.host.tree import Tree


class DemoVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the audit, and the incidents on the simulated machines."""

    verdict: AuditResult
    oddities: tuple[str, ...]
    """What must never happen on a machine but did."""
    rests_on: str
    """How much was read."""

    @property
    def is_ok(self) -> bool:
        return not self.verdict.violations and not self.oddities


async def events_of(bus: Bus) -> tuple[Event, ...]:
    """Return all events on the bus so far."""
    async with read_events(bus=bus, cluster=bus.identity.cluster) as entries:
        return tuple([entry.event async for entry in entries if isinstance(entry, RecordedEvent)])


async def judge_run(
    paths: DemoPaths,
    nodes: Sequence[str],
    *,
    events: tuple[Event, ...],
    pool_facts: Sequence[PoolFacts],
    faults: bool,
) -> DemoVerdict:
    """Audit the run after the cluster and all machines have ended, when their files are complete.

    `pool_facts` is what no revision shows.
    """
    entries = [entry for node in nodes for entry in await _entries(paths, node)]
    revisions = await asyncio.to_thread(_revisions, paths.revisions)
    journal = AuditJournal(
        revisions=revisions,
        entries=tuple(entries),
        events=events,
        pools=with_report_delay(pool_facts, revisions),
    )
    return DemoVerdict(
        verdict=await asyncio.to_thread(judge, journal, faults=faults),
        oddities=await asyncio.to_thread(_incidents, paths, nodes),
        rests_on=f"{len(revisions)} requests to the API server, {len(entries)} entries of"
        f" agents' journals, {len(events)} events",
    )


def lines(found: DemoVerdict) -> Iterator[str]:
    """Return the verdict as lines for a person."""
    yield f"  read: {found.rests_on}"
    for incident in found.oddities:
        yield f"  VIOLATED  on a machine: {incident}"
    for violation in found.verdict.violations:
        where = f" ({violation.node})" if violation.node else ""
        yield f"  VIOLATED  {violation.invariant}{where}: {violation.message}"
    for invariant, lack in sorted(found.verdict.not_judged.items()):
        yield f"  not judged: {invariant} (requires {lack})"
    if found.is_ok:
        yield "  all invariants that could be judged hold"


async def _entries(paths: DemoPaths, node: str) -> list[Entry]:
    tree = Tree(paths.machine(node))
    entries: list[Entry] = []
    for component in COMPONENTS:
        path = tree.at(journal_path(component))
        if path.exists():
            entries += await FileJournal(path, run=asyncio.to_thread).open()
    return entries


def _revisions(path: Path) -> tuple[Revision, ...]:
    decode = msgspec.json.Decoder(Revision).decode
    with path.open("rb") as file:
        return tuple(map(decode, file))


def _incidents(paths: DemoPaths, nodes: Sequence[str]) -> tuple[str, ...]:
    return tuple(line for node in nodes for line in paths.incidents(node).read_text().splitlines())
