"""What is measured of controllers and their queues; each series is there, at zero, from the start.

A queue is asked when somebody scrapes, so its hot path knows nothing of this.
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
    """How a try ended, as it is counted."""

    DONE = "done"
    LATER = "later"
    REFUSED = "refused"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


class ControllerMetrics:
    """Those of all controllers of a process, by name."""

    def __init__(self, metrics: Metrics, *, controllers: Iterable[str]) -> None:
        names = list(controllers)
        self._ended = metrics.counter(
            "sluice_reconciles",
            "Tries of a controller to bring a key where it should be, by how they ended.",
            controller=names,
            outcome=[ended.value for ended in AttemptOutcome],
        )
        self._seconds = metrics.histogram(
            "sluice_reconcile_seconds", "How long a try took.", _BUCKETS, controller=names
        )
        self._queues = _Queues()
        metrics.registry.register(self._queues)

    def register(self, controller: str, queue: WorkQueue[Any]) -> "ReconcileRecorder":
        """The meter of one of those controllers, whose queue is shown from now on."""
        self._queues.shown[controller] = queue
        return ReconcileRecorder(
            ended={ended: self._ended.labels(controller, ended.value) for ended in AttemptOutcome},
            seconds=self._seconds.labels(controller),
        )


class ReconcileRecorder:
    """One controller's."""

    def __init__(self, *, ended: Mapping[AttemptOutcome, Counter], seconds: Histogram) -> None:
        self._ended = ended
        self._seconds = seconds

    def record(self, ended: AttemptOutcome, *, seconds: float) -> None:
        """A try ended so, after so long."""
        self._ended[ended].inc()
        self._seconds.observe(seconds)


_Shown = tuple[
    type[GaugeMetricFamily] | type[CounterMetricFamily], str, str, Callable[[QueueStats], float]
]

_SHOWN: tuple[_Shown, ...] = (
    (GaugeMetricFamily, "waiting", "Keys in line.", lambda queue: queue.waiting),
    (GaugeMetricFamily, "delayed", "Keys due later.", lambda queue: queue.delayed),
    (GaugeMetricFamily, "working", "Keys in hands.", lambda queue: queue.working),
    (
        GaugeMetricFamily,
        "oldest_seconds",
        "How long the key that waits longest has waited.",
        lambda queue: queue.oldest,
    ),
    (CounterMetricFamily, "added", "Keys put in line.", lambda queue: queue.added),
    (
        CounterMetricFamily,
        "retried",
        "Keys that were to be tried again.",
        lambda queue: queue.retried,
    ),
)


class _Queues(Collector):
    def __init__(self) -> None:
        self.shown: dict[str, WorkQueue[Any]] = {}

    def collect(self) -> Iterator[Metric]:
        standings = {name: queue.stats() for name, queue in self.shown.items()}
        for family, name, documentation, value in _SHOWN:
            shown = family(f"sluice_queue_{name}", documentation, labels=["controller"])
            for controller, standing in standings.items():
                shown.add_metric([controller], value(standing))
            yield shown
