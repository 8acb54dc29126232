"""Read the facts that the agents of a node report about its present boot.

A report about another boot is ignored: the machine may have changed since. What is not reported
is unknown, and never counts as absent (docs/invariants.md#i6).
"""

from typing import NamedTuple

from libs.bus.reports import ReportCache
from libs.contracts.facts import Facts
from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage
from libs.contracts.reports import StateKind
from libs.host.pci import is_gpu
from libs.runtime.clock import Clock
from services.discovery.cluster.decide import ReportedFacts
from services.discovery.cluster.resources import Node


class _Absence(NamedTuple):
    uid: str
    boot_id: str
    since: float
    stale_before: float
    """The cache's total of stale seconds at `since`."""


class ReportReader:
    """Read a report cache, and track since when machines have had no GPUs."""

    def __init__(self, reports: ReportCache, *, clock: Clock) -> None:
        self._reports = reports
        self._clock = clock
        self._absences: dict[str, _Absence] = {}

    def read(self, node: Node) -> ReportedFacts:
        facts = self._facts(node, Writer.DISCOVERY)
        driver_facts = self._facts(node, Writer.DRIVER)
        return ReportedFacts(
            facts=facts,
            driver=None if driver_facts is None else driver_facts.driver,
            without_gpus=self._seconds_without_gpus(node, facts),
        )

    def forget(self, name: str) -> None:
        self._absences.pop(name, None)

    def _facts(self, node: Node, writer: Writer) -> Facts | None:
        boot_id = node.status.node_info.boot_id
        report = self._reports.get(node.metadata.name, writer, StateKind.FACTS)
        if report is None or (report.node_uid, report.boot_id) != (node.metadata.uid, boot_id):
            return None
        try:
            body = report.open()
        except MalformedMessage:
            return None
        return body if isinstance(body, Facts) else None

    def _seconds_without_gpus(self, node: Node, facts: Facts | None) -> float | None:
        """Return the seconds since the first report without GPUs, less those of stale reports.

        None if the reports list GPUs, or list no PCI devices at all.
        """
        name, now = node.metadata.name, self._clock.monotonic()
        if facts is None or facts.pci is None or any(map(is_gpu, facts.pci)):
            self._absences.pop(name, None)
            return None
        boot = node.metadata.uid, node.status.node_info.boot_id
        absence = self._absences.get(name)
        if absence is None or absence[:2] != boot:
            absence = self._absences[name] = _Absence(*boot, now, self._reports.stale_seconds)
        if self._reports.age:
            return 0.0  # a newer report may be missed now
        return now - absence.since - (self._reports.stale_seconds - absence.stale_before)
