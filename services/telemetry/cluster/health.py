"""The health of the fleet: events when a rule is broken or no longer, and metrics.

An agent may lie. A verdict that names an unknown state or rule, a malformed GPU, or more GPUs than
a node can have is ignored as a whole, and the events of each node are limited.
"""

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from libs.bus.events import EventPublisher
from libs.bus.reports import ReportCache
from libs.contracts import gpu_forms as forms
from libs.contracts.events import HealthEvent, about_gpu
from libs.contracts.health import GpuHealth, Health, HealthFinding, HealthState
from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage
from libs.contracts.reports import Report, StateKind
from libs.contracts.subjects import State
from libs.contracts.words import printable
from libs.health.node import MAX_GPUS
from libs.health.record import MAX_FINDINGS
from libs.kube.cache import Cache
from libs.runtime.clock import Clock
from services.telemetry.cluster.fleet import Node

MAX_EVENTS: Final = 100
"""The most events of a node within `WINDOW`; more changes than that are not told one by one."""
WINDOW: Final = 3600.0
MAX_TEXT: Final = 300
_STATES: Final = tuple(HealthState)
_Key = tuple[str, str, int | None]
"""A GPU, a rule, and the number of an XID."""


def read_verdict(report: Report | None) -> Health | None:
    """Return the verdict of a report; None if it cannot be true."""
    if report is None:
        return None
    try:
        health = report.open()
    except MalformedMessage:
        return None
    if not isinstance(health, Health) or len(health.gpus) > MAX_GPUS:
        return None
    return health if all(map(_is_proper, health.gpus)) else None


def _is_proper(gpu: GpuHealth) -> bool:
    """Whether a verdict can be true.

    A part that is not refuses the report as a whole: the other parts are of the same agent.
    """
    return (
        forms.has_form(gpu.uuid, forms.UUID)
        and forms.has_form(gpu.pci, forms.PCI)
        and gpu.index < MAX_GPUS
        and gpu.state.is_known
        and len(gpu.findings) <= MAX_FINDINGS
        and all(each.rule.is_known and each.state.is_known for each in gpu.findings)
    )


def gpu_name(gpu: GpuHealth) -> str:
    """Return the UUID, or what else names the GPU on its node."""
    return gpu.uuid or f"index-{gpu.index}"


class FleetHealth:
    """The verdicts of all nodes; a verdict counts while its Node exists."""

    def __init__(
        self, nodes: Cache[Node], reports: ReportCache, *, publisher: EventPublisher, clock: Clock
    ) -> None:
        self._nodes = nodes
        self._reports = reports
        self._publisher = publisher
        self._clock = clock
        self._published: dict[str, deque[float]] = {}
        """By node: the times of its latest events."""
        self.unpublished = 0
        """Events that were left out, because their node had too many."""
        reports.on_change(self._on_report)

    def verdicts(self) -> Iterator[tuple[str, Health]]:
        """Yield the verdicts by name of the node."""
        for node in sorted(self._reports.nodes()):
            report = self._reports.get(node, Writer.TELEMETRY, StateKind.HEALTH)
            health = read_verdict(report)
            if report is not None and health is not None and self._exists(node, report.node_uid):
                yield node, health

    def forget(self, node: str) -> None:
        """Let a node that is deleted have no events counted against one of the same name."""
        self._published.pop(node, None)

    def _exists(self, name: str, uid: str) -> bool:
        node = self._nodes.get(name)
        return node is not None and node.metadata.uid == uid

    def _on_report(self, subject: State, before: Report | None, after: Report | None) -> None:
        """Tell what changed since the report before; the first reading has been told already."""
        # What the stream held at the start has been told before.
        is_first_reading = math.isinf(self._reports.age)
        if subject.kind != StateKind.HEALTH or after is None or is_first_reading:
            return
        now = read_verdict(after)
        if now is None or not self._exists(after.node, after.node_uid):
            return
        was = read_verdict(before) or Health()
        for key, finding, is_firing in _changes(_findings(was), _findings(now)):
            self._publish(after, key, finding, is_firing=is_firing)

    def _publish(
        self, report: Report, key: _Key, finding: HealthFinding, *, is_firing: bool
    ) -> None:
        node, (gpu, rule, xid) = report.node, key
        if not self._may_publish(node):
            self.unpublished += 1
            return
        text, state = _clean(finding.message), finding.state.value
        detail = f"{text}: {_clean(finding.remedy)}" if finding.remedy else text
        self._publisher.publish(
            HealthEvent(rule=rule, gpu=gpu, firing=is_firing, value=text),
            # The same in all replicas.
            id=f"health/{node}/{report.boot_id}/{gpu}/{rule}/{xid or 0}/{is_firing}/{report.at}",
            message=about_gpu(
                gpu,
                f"{state}: {detail}" if is_firing else f"no longer {state} for this reason: {text}",
            ),
            node=node,
            node_uid=report.node_uid,
        )

    def _may_publish(self, node: str) -> bool:
        """Whether a node may tell one more event: a lying agent must not fill the history."""
        now, times = self._clock.monotonic(), self._published.setdefault(node, deque())
        while times and now - times[0] >= WINDOW:
            times.popleft()
        if len(times) >= MAX_EVENTS:
            return False
        times.append(now)
        return True


def _findings(health: Health) -> dict[_Key, HealthFinding]:
    """Return the findings by key; of two of one rule, the worse."""
    found: dict[_Key, HealthFinding] = {}
    for gpu in health.gpus:
        for each in gpu.findings:
            found.setdefault((gpu_name(gpu), each.rule.value, each.xid), each)
    return found


def _changes(
    before: Mapping[_Key, HealthFinding], after: Mapping[_Key, HealthFinding]
) -> Iterator[tuple[_Key, HealthFinding, bool]]:
    """Yield what ended, then what began or changed its state."""
    for key, finding in before.items():
        if key not in after:
            yield key, finding, False
    for key, finding in after.items():
        if key not in before or before[key].state is not finding.state:
            yield key, finding, True


def _clean(text: str) -> str:
    """Return a text for an event: on one line, and no longer than people read."""
    return printable(text, "")[:MAX_TEXT]


class HealthCollector(Collector):
    """Builds the metrics at each scrape."""

    def __init__(self, fleet: FleetHealth) -> None:
        self._fleet = fleet

    def collect(self) -> Iterator[Metric]:
        counts = Counter[HealthState]()
        unhealthy = GaugeMetricFamily(
            "sluice_gpu_unhealthy",
            "1 for each rule that a GPU breaks, with the state that this means.",
            labels=["node", "gpu", "rule", "state"],
        )
        for node, health in self._fleet.verdicts():
            counts.update(gpu.state for gpu in health.gpus)
            rows = {
                (node, gpu_name(gpu), each.rule.value, each.state.value): None
                for gpu in health.gpus
                for each in gpu.findings
            }
            for row in rows:
                unhealthy.add_metric(row, 1)
        gpus = GaugeMetricFamily(
            "sluice_gpu_health", "Number of GPUs by the state of their health.", labels=["state"]
        )
        for state in _STATES:
            gpus.add_metric([state.value], counts[state])
        yield from (gpus, unhealthy)
        yield CounterMetricFamily(
            "sluice_gpu_health_unpublished_events",
            "Events about the health of GPUs that were left out, because their node had too many.",
            value=self._fleet.unpublished,
        )
