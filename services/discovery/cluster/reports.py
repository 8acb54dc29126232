"""Read the facts that the agents of a node report about its present boot.

A report about another boot is ignored: the machine may have changed since. What is not reported
is unknown, and never counts as absent (docs/invariants.md#i6).
"""

from typing import Final

from libs.bus.reports import ReportCache
from libs.contracts.facts import Facts
from libs.contracts.health import Health
from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage
from libs.contracts.reports import StateBody, StateKind
from libs.host.pci import is_gpu
from libs.runtime.clock import Clock
from services.discovery.cluster.absences import Absences
from services.discovery.cluster.decide import ReportedFacts
from services.discovery.cluster.reported_gpus import ReportedGpus, read_gpus
from services.discovery.cluster.resources import Node

_GPUS: Final = frozenset(("gpus",))


class ReportReader:
    """Read a report cache, and track since when machines have had no GPUs."""

    def __init__(self, reports: ReportCache, *, clock: Clock) -> None:
        self._reports = reports
        self._clock = clock
        self._absences = Absences(reports, clock=clock)

    def read(self, node: Node) -> ReportedFacts:
        facts = _facts(self._reports, node, Writer.DISCOVERY)
        driver_facts = _facts(self._reports, node, Writer.DRIVER)
        return ReportedFacts(
            facts=facts,
            driver=None if driver_facts is None else driver_facts.driver,
            without_gpus=self._seconds_without_gpus(node, facts),
            at=self._clock.now(),
        )

    def forget(self, name: str) -> None:
        self._absences.forget(name)

    def _seconds_without_gpus(self, node: Node, facts: Facts | None) -> float | None:
        """Return the seconds since the first report without GPUs, less those of stale reports.

        None if the reports list GPUs, or list no PCI devices at all.
        """
        absent = facts is not None and facts.pci is not None and not any(map(is_gpu, facts.pci))
        return self._absences.update(node, _GPUS if absent else frozenset()).get("gpus")


def read_devices(
    reports: ReportCache, node: Node, *, now: float, is_silent: bool | None = False
) -> ReportedGpus:
    """Return what the agents of a node report about its GPUs.

    `is_silent`: whether its telemetry agent has stopped sending heartbeats, if that is known.
    """
    driver_facts = _facts(reports, node, Writer.DRIVER)
    driver = None if driver_facts is None else driver_facts.driver
    health = _body(reports, node, Writer.TELEMETRY, StateKind.HEALTH)
    return read_gpus(
        _facts(reports, node, Writer.DISCOVERY),
        None if driver is None else driver.version,
        health if isinstance(health, Health) else None,
        now=now,
        is_silent=is_silent,
    )


def _facts(reports: ReportCache, node: Node, writer: Writer) -> Facts | None:
    body = _body(reports, node, writer, StateKind.FACTS)
    return body if isinstance(body, Facts) else None


def _body(reports: ReportCache, node: Node, writer: Writer, kind: StateKind) -> StateBody | None:
    """Return a readable report about the present boot of this Node."""
    report = reports.get(node.metadata.name, writer, kind)
    boot = node.metadata.uid, node.status.node_info.boot_id
    if report is None or (report.node_uid, report.boot_id) != boot:
        return None
    try:
        return report.open()
    except MalformedMessage:
        return None
