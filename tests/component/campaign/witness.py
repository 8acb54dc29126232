"""What no revision shows and an audit must know: who is without a driver behind a shut gate.

It hears what the driver agents report; a node that never had a driver is not one that lost it.
"""

from sluice.bus.local import Happened
from sluice.contracts import subjects
from sluice.contracts.facts import Facts
from sluice.contracts.identities import Writer
from sluice.contracts.message import decode
from sluice.contracts.reports import Report, StateKind
from sluice.rollout.audit import PoolFacts


class Witness:
    """Listens for as long as the bus is there."""

    def __init__(self, *, pool: str, max_unavailable: str) -> None:
        self._pool = pool
        self._max_unavailable = max_unavailable
        self._had: set[str] = set()
        self._without: frozenset[str] = frozenset()
        self.testimony: list[PoolFacts] = []

    def hear(self, it: Happened) -> None:
        """Something was said on the bus."""
        of = subjects.parse(it.subject) if it.what == "store" else None
        if not isinstance(of, subjects.State) or of.kind != StateKind.FACTS:
            return
        if of.component != Writer.DRIVER:
            return
        report = decode(Report, it.data)
        facts = report.open()
        if not isinstance(facts, Facts):
            return
        if facts.driver is not None:
            self._had.add(report.node_uid)
        lacks = facts.driver is None and report.node_uid in self._had
        self._without = (self._without - {report.node_uid}) | (
            {report.node_uid} if lacks else set()
        )
        self._testify(it.time)

    def _testify(self, at: float) -> None:
        if self.testimony and self.testimony[-1].shut_out == self._without:
            return
        self.testimony.append(
            PoolFacts(
                key=self._pool,
                since=at if self.testimony else 0.0,
                max_unavailable=self._max_unavailable,
                shut_out=self._without,
            )
        )
