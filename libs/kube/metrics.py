"""Metrics of controllers and their queues; each series exists from the start.

Queues are read on scrape, so metrics cost nothing on their hot path.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from libs.kube.queue import QueueStats, WorkQueue
from libs.runtime.metrics import Metrics

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class AttemptOutcome(StrEnum):
    DONE = "done"
    LATER = "later"
    REFUSED = "refused"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


class ControllerMetrics:
    """The metrics of all controllers of a process, by name."""

    def __init__(self, metrics: Metrics, *, controllers: Iterable[str]) -> None:
        names = list(controllers)
        self._attempts = metrics.counter(
            "sluice_reconciles",
            "Reconciles of a controller, by outcome.",
            controller=names,
            outcome=[outcome.value for outcome in AttemptOutcome],
        )
        self._seconds = metrics.histogram(
            "sluice_reconcile_seconds", "Duration of a reconcile.", _BUCKETS, controller=names
        )
        self._queues = _Queues()
        metrics.registry.register(self._queues)

    def register(self, controller: str, queue: WorkQueue[Any]) -> "ReconcileRecorder":
        """Return the recorder of a controller and export its queue from now on."""
        self._queues.queues[controller] = queue
        return ReconcileRecorder(
            attempts={
                outcome: self._attempts.labels(controller, outcome.value)
                for outcome in AttemptOutcome
            },
            seconds=self._seconds.labels(controller),
        )


class ReconcileRecorder:
    def __init__(self, *, attempts: Mapping[AttemptOutcome, Counter], seconds: Histogram) -> None:
        self._attempts = attempts
        self._seconds = seconds

    def record(self, outcome: AttemptOutcome, *, seconds: float) -> None:
        self._attempts[outcome].inc()
        self._seconds.observe(seconds)


_QueueMetric = tuple[
    type[GaugeMetricFamily] | type[CounterMetricFamily], str, str, Callable[[QueueStats], float]
]

_QUEUE_METRICS: tuple[_QueueMetric, ...] = (
    (GaugeMetricFamily, "waiting", "Keys waiting in the queue.", lambda queue: queue.waiting),
    (
        GaugeMetricFamily,
        "delayed",
        "Keys added with a delay that is not over.",
        lambda queue: queue.delayed,
    ),
    (GaugeMetricFamily, "working", "Keys being reconciled.", lambda queue: queue.working),
    (
        GaugeMetricFamily,
        "oldest_seconds",
        "How long the oldest waiting key has waited.",
        lambda queue: queue.oldest,
    ),
    (CounterMetricFamily, "added", "Keys added to the queue.", lambda queue: queue.added),
    (
        CounterMetricFamily,
        "retried",
        "Keys added again after a failure.",
        lambda queue: queue.retried,
    ),
)


class _Queues(Collector):
    def __init__(self) -> None:
        self.queues: dict[str, WorkQueue[Any]] = {}

    def collect(self) -> Iterator[Metric]:
        stats = {name: queue.stats() for name, queue in self.queues.items()}
        for family, name, documentation, value in _QUEUE_METRICS:
            metric = family(f"sluice_queue_{name}", documentation, labels=["controller"])
            for controller, queue_stats in stats.items():
                metric.add_metric([controller], value(queue_stats))
            yield metric
