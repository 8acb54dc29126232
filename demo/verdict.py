"""Whether all is well: the audit over what the API server, the agents and the bus have kept.

The judge is `libs.audit`, as everywhere; here is only what it is shown.
"""

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
from libs.bus.port import Bus, FromSequence
from libs.contracts.events import Event
from libs.contracts.identities import COMPONENTS
from libs.contracts.journal import Entry, Revision
from libs.host.tree import Tree


class DemoVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the judge says."""

    verdict: AuditResult
    oddities: tuple[str, ...]
    """What must never happen on a machine, and did."""
    rests_on: str
    """How much it has read: a verdict over nothing would be worth nothing."""

    @property
    def is_ok(self) -> bool:
        """Whether nothing was broken."""
        return not self.verdict.violations and not self.oddities


async def events_of(bus: Bus) -> tuple[Event, ...]:
    """Everything that was said on the bus."""
    async with read_events(bus=bus, cluster=bus.identity.cluster, start=FromSequence()) as entries:
        return tuple([one.event async for one in entries if isinstance(one, RecordedEvent)])


async def judge_run(
    paths: DemoPaths,
    nodes: Sequence[str],
    *,
    events: tuple[Event, ...],
    pool_facts: Sequence[PoolFacts],
    faults: bool,
) -> DemoVerdict:
    """The audit's word, and what it rests on; `testimony` is of what no revision shows.

    For when the cluster and all machines have ended: their files are complete then.
    """
    entries = [entry for node in nodes for entry in await _entries(paths, node)]
    revisions = await asyncio.to_thread(lambda: tuple(_revisions(paths.revisions)))
    journal = AuditJournal(
        revisions=revisions,
        entries=tuple(entries),
        events=events,
        pools=with_report_delay(pool_facts, revisions),
    )
    return DemoVerdict(
        verdict=await asyncio.to_thread(judge, journal, faults=faults),
        oddities=await asyncio.to_thread(lambda: tuple(_oddities(paths, nodes))),
        rests_on=f"{len(revisions)} requests to the API server, {len(entries)} lines of agents'"
        f" journals, {len(events)} events",
    )


def lines(found: DemoVerdict) -> Iterator[str]:
    """The same for a person."""
    yield f"  it has read {found.rests_on}"
    for odd in found.oddities:
        yield f"  BROKEN  on a machine: {odd}"
    for one in found.verdict.violations:
        place = f" ({one.node})" if one.node else ""
        yield f"  BROKEN  {one.invariant}{place}: {one.message}"
    for invariant, lack in sorted(found.verdict.not_judged.items()):
        yield f"  not judged: {invariant}, for want of {lack}"
    if found.is_ok:
        yield "  every promise that it can judge was kept"


async def _entries(places: DemoPaths, node: str) -> list[Entry]:
    tree = Tree(places.machine(node))
    found: list[Entry] = []
    for component in COMPONENTS:
        path = tree.at(journal_path(component))
        if path.exists():
            found += await FileJournal(path, run=asyncio.to_thread).open()
    return found


def _revisions(path: Path) -> Iterator[Revision]:
    decode = msgspec.json.Decoder(Revision).decode
    with path.open("rb") as file:
        yield from map(decode, file)


def _oddities(places: DemoPaths, nodes: Sequence[str]) -> Iterator[str]:
    for node in nodes:
        yield from places.incidents(node).read_text().splitlines()
