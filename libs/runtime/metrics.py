"""Metrics of one process, in a registry of its own instead of prometheus-client's global one."""

import itertools
from collections.abc import Iterable, Sequence
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics import MetricWrapperBase

from libs.runtime.service import Service, ServicePhase

M = TypeVar("M", bound=MetricWrapperBase)


class Metrics:
    """Create metrics whose label values are known from the start, so that each begins at zero.

    A metric whose label values are only known at run time uses `registry` directly.
    """

    def __init__(self, *, version: str) -> None:
        disable_created_metrics()
        self.registry = CollectorRegistry()
        build = self.gauge("sluice_build_info", "The running build; always 1.", version=[version])
        build.labels(version).set(1)
        self._phase = Gauge(
            "sluice_service_phase",
            "1 for the current phase of the service, 0 for the others.",
            ["service", "phase"],
            registry=self.registry,
        )

    def counter(self, name: str, documentation: str, /, **labels: Iterable[str]) -> Counter:
        return _zeroed(Counter(name, documentation, list(labels), registry=self.registry), labels)

    def gauge(self, name: str, documentation: str, /, **labels: Iterable[str]) -> Gauge:
        return _zeroed(Gauge(name, documentation, list(labels), registry=self.registry), labels)

    def histogram(
        self, name: str, documentation: str, buckets: Sequence[float], /, **labels: Iterable[str]
    ) -> Histogram:
        return _zeroed(
            Histogram(name, documentation, list(labels), buckets=buckets, registry=self.registry),
            labels,
        )

    def watch(self, service: Service) -> None:
        """Export the phase of a service, read at each scrape."""
        for phase in ServicePhase:
            child = self._phase.labels(service.name, phase.value)
            child.set_function(lambda phase=phase: float(service.phase is phase))

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


def _zeroed(metric: M, labels: dict[str, Iterable[str]]) -> M:
    """Create the metric's child of each combination of label values."""
    if labels:
        for values in itertools.product(*labels.values()):
            metric.labels(*values)
    return metric
