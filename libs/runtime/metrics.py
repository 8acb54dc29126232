"""Metrics of one process, in a registry of its own: never prometheus-client's global one.

It knows no metric of any service but the two that all have: the build, and the phase.
"""

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
    """Makes metrics whose label values are known from the start, so that each begins at zero.

    A metric whose label values are found at run time takes `registry` and has no zeroes.
    """

    def __init__(self, *, version: str) -> None:
        disable_created_metrics()
        self.registry = CollectorRegistry()
        build = self.gauge("sluice_build_info", "Which build this is; always 1.", version=[version])
        build.labels(version).set(1)
        self._phase = Gauge(
            "sluice_service_phase",
            "1 for the phase in which the service is, 0 for the others.",
            ["service", "phase"],
            registry=self.registry,
        )

    def counter(self, name: str, documentation: str, /, **labels: Iterable[str]) -> Counter:
        """A counter with a zero for each combination of the label values."""
        return _zeroed(Counter(name, documentation, list(labels), registry=self.registry), labels)

    def gauge(self, name: str, documentation: str, /, **labels: Iterable[str]) -> Gauge:
        """A gauge with a zero for each combination of the label values."""
        return _zeroed(Gauge(name, documentation, list(labels), registry=self.registry), labels)

    def histogram(
        self, name: str, documentation: str, buckets: Sequence[float], /, **labels: Iterable[str]
    ) -> Histogram:
        """A histogram with empty buckets for each combination of the label values."""
        made = Histogram(name, documentation, list(labels), buckets=buckets, registry=self.registry)
        return _zeroed(made, labels)

    def watch(self, service: Service) -> None:
        """Show the phase of a service, as it is when somebody looks."""
        for phase in ServicePhase:
            child = self._phase.labels(service.name, phase.value)
            child.set_function(lambda phase=phase: float(service.phase is phase))

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)


def _zeroed(metric: M, labels: dict[str, Iterable[str]]) -> M:
    if labels:
        for values in itertools.product(*labels.values()):
            metric.labels(*values)
    return metric
