"""Facts for the audit that no revision shows: the nodes on which no driver is loaded.

They come from the reports of the driver agents. A node stays the same across reboots.
"""

from bisect import bisect_right
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from math import inf, nextafter
from typing import Final

from msgspec.structs import replace

from libs.audit import PoolFacts
from libs.bus.port import Bus
from libs.bus.reports import ReportCache
from libs.contracts.facts import Facts
from libs.contracts.identities import Writer
from libs.contracts.journal import Revision
from libs.contracts.reports import Report, StateKind
from libs.contracts.subjects import State
from libs.policy.shapes import IntOrString
from libs.runtime.clock import Clock

NODE: Final = "Node"
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
        """Take note of a report; only facts of driver agents count."""
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

    Other readers may receive a report up to `REPORT_DELAY` later. A scheduler that learns from it
    that a driver is back names the last revision of Nodes before that report.
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
    moments = {*starts, *(moment for since, until, _ in doubts for moment in (since, until))}
    marked: list[PoolFacts] = []
    for moment in sorted(moments):
        facts = pool_facts[bisect_right(starts, moment) - 1]
        open_doubts = (nodes for since, until, nodes in doubts if since <= moment < until)
        doubtful = frozenset[str]().union(*open_doubts)
        certain = facts.driverless - doubtful
        marked.append(replace(facts, since=moment, driverless=certain, doubtful=doubtful))
    return tuple(marked)


@asynccontextmanager
async def observe_reports(
    driverless: DriverlessNodes, *, bus: Bus, clock: Clock
) -> AsyncGenerator[None]:
    """Pass all reports on the bus to `driverless` until the end of the block."""
    reports = ReportCache(bus=bus, clock=clock, cluster=bus.identity.cluster)

    def changed(_of: State, _before: Report | None, after: Report | None) -> None:
        if after is not None:
            driverless.observe(after, at=clock.now())

    reports.on_change(changed)
    async with reports:
        yield
