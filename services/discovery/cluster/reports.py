"""What the agents of a node say of it, as far as it is of this Node and of its present boot.

A report of another boot is no report: what it said may have changed meanwhile. What is not said is
not known, and never means that it is not there (docs/invariants.md#i6).
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


class _Missing(NamedTuple):
    uid: str
    boot_id: str
    since: float
    away: float
    """For how long nothing had been heard by then, in all."""


class ReportReader:
    """Reads a mirror of reports, and remembers since when machines have had no GPUs."""

    def __init__(self, reports: ReportCache, *, clock: Clock) -> None:
        self._mirror = reports
        self._clock = clock
        self._missing: dict[str, _Missing] = {}

    def read(self, node: Node) -> ReportedFacts:
        """All that counts for this Node."""
        facts = self._facts(node, Writer.DISCOVERY)
        of_driver = self._facts(node, Writer.DRIVER)
        return ReportedFacts(
            facts=facts,
            driver=None if of_driver is None else of_driver.driver,
            without_gpus=self._without_gpus(node, facts),
        )

    def forget(self, name: str) -> None:
        """The Node is gone."""
        self._missing.pop(name, None)

    def _facts(self, node: Node, writer: Writer) -> Facts | None:
        boot_id = node.status.node_info.boot_id
        report = self._mirror.get(node.metadata.name, writer, StateKind.FACTS)
        if report is None or (report.node_uid, report.boot_id) != (node.metadata.uid, boot_id):
            return None
        try:
            body = report.open()
        except MalformedMessage:
            return None
        return body if isinstance(body, Facts) else None

    def _without_gpus(self, node: Node, facts: Facts | None) -> float | None:
        name, now = node.metadata.name, self._clock.monotonic()
        if facts is None or facts.pci is None or any(map(is_gpu, facts.pci)):
            self._missing.pop(name, None)
            return None
        of = node.metadata.uid, node.status.node_info.boot_id
        missing = self._missing.get(name)
        if missing is None or missing[:2] != of:
            missing = self._missing[name] = _Missing(*of, now, self._mirror.stale_seconds)
        if self._mirror.age:
            return 0.0  # it may have said something else meanwhile
        return now - missing.since - (self._mirror.stale_seconds - missing.away)
