"""What no revision shows and an audit must know: on whom no driver is loaded.

It hears what the driver agents report; another boot of a node is still that node.
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
"""Reports are not for people: as one of those who may read them."""
REPORT_DELAY: Final = 2.0
"""Seconds after which everybody has heard a report that somebody heard."""


class DriverlessNodes:
    """Of one pool; its testimony begins with the first report and grows with each that is news."""

    def __init__(self, *, pool: str, max_unavailable: IntOrString) -> None:
        self._pool = pool
        self._max_unavailable = max_unavailable
        self._without: frozenset[str] = frozenset()
        self.pool_facts: list[PoolFacts] = []

    def observe(self, report: Report, *, at: float) -> None:
        """Something was reported; anything but facts of a driver agent is no news."""
        if (report.component, report.kind) != (Writer.DRIVER, StateKind.FACTS):
            return
        facts = report.open()
        if not isinstance(facts, Facts):
            return
        node = {report.node_uid}
        self._without = self._without | node if facts.driver is None else self._without - node
        self._testify(at)

    def _testify(self, at: float) -> None:
        if self.pool_facts and self.pool_facts[-1].driverless == self._without:
            return
        self.pool_facts.append(
            PoolFacts(
                key=self._pool,
                since=at if self.pool_facts else 0.0,
                max_unavailable=self._max_unavailable,
                driverless=self._without,
            )
        )


def with_report_delay(
    pool_facts: Sequence[PoolFacts], revisions: Sequence[Revision]
) -> tuple[PoolFacts, ...]:
    """The same with what is in doubt: a report has no revision, and others hear it a little later.

    Who heard that a driver is back, and decided at once, names the last revision of Nodes before
    that report.
    """
    times = [one.time for one in revisions if one.kind == NODE]
    doubts: list[tuple[float, float, frozenset[str]]] = []
    for before, after in pairwise(pool_facts):
        since = after.since
        if before.driverless - after.driverless:
            earlier = bisect_right(times, since)
            since = nextafter(times[earlier - 1], inf) if earlier else 0.0
        doubts.append((since, after.since + REPORT_DELAY, before.driverless ^ after.driverless))
    begun = [one.since for one in pool_facts]
    told: list[PoolFacts] = []
    for moment in sorted({*begun, *(one for since, until, _ in doubts for one in (since, until))}):
        holds = pool_facts[bisect_right(begun, moment) - 1]
        open_now = (who for since, until, who in doubts if since <= moment < until)
        doubtful = frozenset[str]().union(*open_now)
        certain = holds.driverless - doubtful
        told.append(replace(holds, since=moment, driverless=certain, doubtful=doubtful))
    return tuple(told)


@asynccontextmanager
async def observe_reports(
    driverless: DriverlessNodes, *, bus: Bus, clock: Clock
) -> AsyncGenerator[None]:
    """It hears everything that is reported until the end of the block."""
    mirror = ReportCache(bus=bus, clock=clock, cluster=bus.identity.cluster)

    def changed(_of: State, _before: Report | None, after: Report | None) -> None:
        if after is not None:
            driverless.observe(after, at=clock.now())

    mirror.on_change(changed)
    async with mirror:
        yield
