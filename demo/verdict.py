"""The audit of a finished demo, over the journals of the API server, the agents and the bus."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from math import inf, nextafter
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from demo.node_agents import journal_path
from demo.paths import DemoPaths
from demo.promises import Promise, promise_lines, promises
from libs.audit import AuditJournal, AuditResult, PoolFacts, judge
from libs.bus.events import RecordedEvent, read_events
from libs.bus.journal import FileJournal
from libs.bus.port import Bus
from libs.bus.reports import ReportCache
from libs.contracts.events import Event
from libs.contracts.facts import Facts
from libs.contracts.identities import COMPONENTS, Writer
from libs.contracts.journal import Entry, Revision
from libs.contracts.reports import Report, StateKind
from libs.contracts.subjects import EVENTS, State
from libs.policy.pool import pool_key
from libs.policy.shapes import IntOrString
from libs.runtime.clock import Clock
from libs.runtime.fatal import Fatal


class DemoVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the audit, and the incidents on the simulated machines."""

    verdict: AuditResult
    incidents: tuple[str, ...]
    """Observed violations on the simulated machines."""
    rests_on: str
    """The number of records that were read."""
    promises: tuple[Promise, ...] = ()

    @property
    def is_ok(self) -> bool:
        return not self.verdict.violations and not self.incidents


READ_SECONDS: Final = 60.0
"""Seconds in which the scheduler creates a lost stream again, and all events are read."""


async def events_of(bus: Bus, *, within: float = READ_SECONDS) -> tuple[Event, ...]:
    """Return all events on the bus so far; raise `Fatal` if they cannot be read in time."""
    try:
        async with (
            asyncio.timeout(within),
            read_events(bus=bus, cluster=bus.identity.cluster) as entries,
        ):
            return tuple(
                [entry.event async for entry in entries if isinstance(entry, RecordedEvent)]
            )
    except TimeoutError:
        raise Fatal(
            f"the events could not be read within {within:g} s: the stream {EVENTS.name} is missing"
            f" or its server does not answer, so the run was not audited"
        ) from None


async def judge_run(
    paths: DemoPaths,
    nodes: Sequence[str],
    *,
    events: tuple[Event, ...],
    pool_facts: Sequence[PoolFacts],
    faults: bool,
) -> DemoVerdict:
    """Audit the run after the cluster and all machines have ended, when their files are complete.

    `pool_facts` are facts that no revision shows.
    """
    entries = [entry for node in nodes for entry in await _entries(paths, node)]
    revisions = await asyncio.to_thread(_revisions, paths.revisions)
    journal = AuditJournal(
        revisions=revisions,
        entries=tuple(entries),
        events=events,
        pools=tuple(_known_facts(pool_facts, revisions)),
    )
    verdict = await asyncio.to_thread(judge, journal, faults=faults)
    return DemoVerdict(
        verdict=verdict,
        promises=await asyncio.to_thread(promises, journal, verdict),
        incidents=await asyncio.to_thread(_incidents, paths, nodes),
        rests_on=f"{len(revisions)} requests to the API server, {len(entries)} entries of"
        f" agents' journals, {len(events)} events",
    )


def verdict_lines(result: DemoVerdict) -> Iterator[str]:
    """Return the verdict as lines for a person."""
    yield f"  read: {result.rests_on}"
    yield from promise_lines(result.promises)
    for incident in result.incidents:
        yield f"  VIOLATED  on a machine: {incident}"
    for violation in result.verdict.violations:
        node = f" ({violation.node})" if violation.node else ""
        yield f"  VIOLATED  {violation.invariant}{node}: {violation.message}"
    if result.is_ok:
        yield "  all invariants that could be judged hold"


async def _entries(paths: DemoPaths, node: str) -> list[Entry]:
    root = paths.machine(node)
    entries: list[Entry] = []
    for component in COMPONENTS:
        path = root / journal_path(component)
        if path.exists():
            entries += await FileJournal(path, run=asyncio.to_thread).open()
    return entries


def _revisions(path: Path) -> tuple[Revision, ...]:
    decode = msgspec.json.Decoder(Revision).decode
    with path.open("rb") as file:
        return tuple(map(decode, file))


def _incidents(paths: DemoPaths, nodes: Sequence[str]) -> tuple[str, ...]:
    return tuple(line for node in nodes for line in paths.incidents(node).read_text().splitlines())


NODE: Final = "Node"
_LIMIT: Final = "spec.upgradePolicy.maxUnavailable"
READER: Final = Writer.VALIDATOR_CLUSTER
"""An identity that may read reports; people may not."""
REPORT_DELAY: Final = 2.0
"""Seconds after which every reader has received a report that one of them received."""


class DriverlessNodes:
    """The driverless nodes of one pool, as a new `PoolFacts` for each change of the set."""

    def __init__(self, *, pool: str, max_unavailable: IntOrString) -> None:
        self._pool = pool
        self._max_unavailable = max_unavailable
        self._driverless: frozenset[str] = frozenset()
        self.pool_facts: list[PoolFacts] = []

    def observe(self, report: Report, *, at: float) -> None:
        """Process a report; only facts of driver agents count."""
        if (report.component, report.kind) != (Writer.DRIVER, StateKind.FACTS):
            return
        facts = report.open()
        if not isinstance(facts, Facts):
            return
        node = {report.node_uid}
        driverless = self._driverless
        self._driverless = driverless | node if facts.driver is None else driverless - node
        if self.pool_facts and self.pool_facts[-1].driverless == self._driverless:
            return
        self.pool_facts.append(
            PoolFacts(
                key=self._pool,
                since=at if self.pool_facts else 0.0,
                max_unavailable=self._max_unavailable,
                driverless=self._driverless,
            )
        )


def with_report_delay(
    pool_facts: Sequence[PoolFacts], revisions: Sequence[Revision]
) -> tuple[PoolFacts, ...]:
    """Mark nodes as doubtful around each change, because a report has no revision.

    Other readers may receive a report up to `REPORT_DELAY` later. A write of the scheduler after a
    report of a returned driver may still name the last revision of Nodes before that report.
    """
    node_times = [revision.time for revision in revisions if revision.kind == NODE]
    doubts: list[tuple[float, float, frozenset[str]]] = []
    for before, after in pairwise(pool_facts):
        since = after.since
        if before.driverless - after.driverless:
            earlier = bisect_right(node_times, since)
            since = nextafter(node_times[earlier - 1], inf) if earlier else 0.0
        doubts.append((since, after.since + REPORT_DELAY, before.driverless ^ after.driverless))
    starts = [facts.since for facts in pool_facts]
    times = {*starts, *(time for since, until, _ in doubts for time in (since, until))}
    marked: list[PoolFacts] = []
    for time in sorted(times):
        facts = pool_facts[bisect_right(starts, time) - 1]
        open_doubts = (nodes for since, until, nodes in doubts if since <= time < until)
        doubtful = frozenset[str]().union(*open_doubts)
        certain = facts.driverless - doubtful
        marked.append(replace(facts, since=time, driverless=certain, doubtful=doubtful))
    return tuple(marked)


def with_limits(
    pool_facts: Sequence[PoolFacts], revisions: Sequence[Revision]
) -> tuple[PoolFacts, ...]:
    """Follow what people write to the limit of a pool, beginning with the one in its facts."""
    limits = [
        (revision.time, after)
        for revision in revisions
        if pool_key(revision.kind, revision.name) == pool_facts[0].key
        for _, after in [revision.changed.get(_LIMIT, (None, None))]
        if after is not None
    ]
    times = sorted({*(facts.since for facts in pool_facts), *(time for time, _ in limits[1:])})
    starts = [facts.since for facts in pool_facts]
    found: list[PoolFacts] = []
    for time in times:
        facts = pool_facts[bisect_right(starts, time) - 1]
        written = [limit for at, limit in limits if at <= time]
        limit = written[-1] if written else facts.max_unavailable
        found.append(replace(facts, since=time, max_unavailable=limit))
    return tuple(found)


def _known_facts(
    pool_facts: Sequence[PoolFacts], revisions: Sequence[Revision]
) -> Iterator[PoolFacts]:
    """Yield the facts of each pool with what revisions show of its limit and of reports."""
    for key in dict.fromkeys(facts.key for facts in pool_facts):
        of_pool = [facts for facts in pool_facts if facts.key == key]
        yield from with_report_delay(with_limits(of_pool, revisions), revisions)


@asynccontextmanager
async def observe_reports(
    *driverless: DriverlessNodes, bus: Bus, clock: Clock
) -> AsyncGenerator[None]:
    """Pass all reports on the bus to each `driverless` until the end of the block."""
    reports = ReportCache(bus=bus, clock=clock, cluster=bus.identity.cluster)

    def changed(_subject: State, _before: Report | None, after: Report | None) -> None:
        if after is not None:
            for each in driverless:
                each.observe(after, at=clock.now())

    reports.on_change(changed)
    async with reports:
        yield
