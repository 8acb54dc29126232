"""A controller: take keys from a work queue and reconcile each.

`reconcile` gets a key, reads the state itself and returns a result. An error is retried with
back-off, and logged once per cause rather than once per attempt. A key that hangs occupies one
worker until its timeout and delays no other key.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from structlog.contextvars import bound_contextvars

from libs.kube.errors import KubeError
from libs.kube.queue import RETRY_CAP, WorkQueue
from libs.runtime.env import Env
from libs.runtime.fatal import describe_error
from libs.runtime.logs import logger
from libs.runtime.metrics import Metrics
from libs.runtime.subscriptions import subscribed
from libs.runtime.tasks import attempt, bounded

RETRY_REFUSED = 60.0
"""Seconds after which a write that the server refused is tried again."""
SHORTEST_WAIT = 0.001
"""Seconds until a key is queued again, at least: a computed wait can be a rounding error that is
below the resolution of the clock, which would show the same time again.
"""
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class AttemptOutcome(StrEnum):
    DONE = "done"
    LATER = "later"
    REFUSED = "refused"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


class ControllerMetrics:
    """The metrics of all controllers of a process, by name; each series exists from the start."""

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

    def register(self, controller: str, queue: WorkQueue[Any]) -> None:
        """Export the queue of a controller from now on."""
        self._queues.queues[controller] = queue

    def record(self, controller: str, outcome: AttemptOutcome, *, seconds: float) -> None:
        self._attempts.labels(controller, outcome.value).inc()
        self._seconds.labels(controller).observe(seconds)


_QUEUE_METRICS: tuple[tuple[type[GaugeMetricFamily | CounterMetricFamily], str, str, str], ...] = (
    (GaugeMetricFamily, "waiting", "waiting", "Keys waiting in the queue."),
    (GaugeMetricFamily, "delayed", "delayed", "Keys added with a delay that is not over."),
    (GaugeMetricFamily, "working", "working", "Keys being reconciled."),
    (GaugeMetricFamily, "oldest_seconds", "oldest", "How long the oldest waiting key has waited."),
    (CounterMetricFamily, "added", "added", "Keys added to the queue."),
    (CounterMetricFamily, "retried", "retried", "Keys added again after a failure."),
)
"""Type, name, field of `QueueStats` and help of each metric."""


class _Queues(Collector):
    """The queues, which are read on scrape: metrics cost nothing on their hot path."""

    def __init__(self) -> None:
        self.queues: dict[str, WorkQueue[Any]] = {}

    def collect(self) -> Iterator[Metric]:
        stats = {name: queue.stats() for name, queue in self.queues.items()}
        for family, name, field, documentation in _QUEUE_METRICS:
            metric = family(f"sluice_queue_{name}", documentation, labels=["controller"])
            for controller, queue_stats in stats.items():
                metric.add_metric([controller], getattr(queue_stats, field))
            yield metric


K = TypeVar("K", bound=Hashable)

_log = logger()
_DIGITS = re.compile(r"\d+")


class Reconciled(msgspec.Struct, frozen=True):
    """Done until something changes."""


class RequeueAfter(msgspec.Struct, frozen=True):
    """Done for `seconds`, unless something changes."""

    seconds: float


class ReconcileRefused(msgspec.Struct, frozen=True):
    """Impossible, and a retry would not help until something changes."""

    why: str
    again_in: float | None = None
    """Seconds until what changed may be something that no cache shows, such as a right."""


ReconcileResult = Reconciled | RequeueAfter | ReconcileRefused
Reconcile = Callable[[K], Awaitable[ReconcileResult]]


class Controller(Generic[K]):
    """Reconciles up to `concurrency` keys at a time, each for at most `timeout` seconds."""

    def __init__(
        self,
        *,
        name: str,
        reconcile: Reconcile[K],
        concurrency: int,
        timeout: float,
        env: Env,
        metrics: ControllerMetrics,
    ) -> None:
        self._name = name
        self._reconcile = reconcile
        self.queue: WorkQueue[K] = WorkQueue(clock=env.clock)
        """Takes what is to be reconciled; it may be filled before `run`."""
        self._concurrency = concurrency
        self._timeout = timeout
        self._clock = env.clock
        self._ids = env.ids
        self._metrics = metrics
        metrics.register(name, self.queue)
        self._failures: dict[K, str] = {}
        """The reason of each key whose last attempt failed or was refused."""

    async def run(self) -> None:
        """Run until cancelled; then cancel the running keys and start no more."""
        workers = [
            asyncio.create_task(self._run_worker(), name=f"{self._name}/{number}")
            for number in range(self._concurrency)
        ]
        try:
            await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self.queue.close()
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)
        for worker in workers:
            worker.result()

    async def run_subscribed(self, *subscriptions: Callable[[], None]) -> None:
        """Run until cancelled; then end what filled the queue, so that no later term is woken."""
        with subscribed(*subscriptions):
            await self.run()

    async def _run_worker(self) -> None:
        while True:
            key = await self.queue.get()
            try:
                with bound_contextvars(
                    controller=self._name, key=str(key), reconcile=self._ids.new()[:12]
                ):
                    await self._process(key)
            finally:
                self.queue.done(key)

    async def _process(self, key: K) -> None:
        started = self._clock.monotonic()
        result = await self._call(key)
        seconds = self._clock.monotonic() - started
        match result:
            case Reconciled():
                outcome = AttemptOutcome.DONE
                self._succeeded(key)
            case RequeueAfter(after):
                outcome = AttemptOutcome.LATER
                self._succeeded(key)
                self.queue.add_after(key, max(after, SHORTEST_WAIT))
            case ReconcileRefused(why, again_in):
                outcome = AttemptOutcome.REFUSED
                self.queue.forget(key)
                if again_in is not None:
                    self.queue.add_after(key, again_in)
                if self._is_new_cause(key, why):
                    _log.warning("reconcile was refused", why=why)
            case Exception() as error:
                timed_out = isinstance(error, TimeoutError) and seconds >= self._timeout
                outcome = AttemptOutcome.TIMED_OUT if timed_out else AttemptOutcome.FAILED
                retry_after = error.retry_after if isinstance(error, KubeError) else None
                wait = self.queue.retry(key, at_least=min(retry_after or 0.0, RETRY_CAP))
                if self._is_new_cause(key, describe_error(error)):
                    _log.warning("reconcile failed", exc_info=error, retry_in=round(wait, 3))
        self._metrics.record(self._name, outcome, seconds=seconds)

    async def _call(self, key: K) -> ReconcileResult | Exception:
        results: list[ReconcileResult] = []

        async def reconcile() -> None:
            call = self._reconcile(key)
            results.append(await bounded(call, seconds=self._timeout, clock=self._clock))

        try:
            error = await attempt(reconcile())
        except asyncio.CancelledError:
            worker = asyncio.current_task()
            if worker is None or worker.cancelling():
                raise
            error = RuntimeError("a task that the reconcile awaited was cancelled")
        return error or results[0]

    def _succeeded(self, key: K) -> None:
        self.queue.forget(key)
        failure = self._failures.pop(key, None)
        if failure is not None:
            _log.info("reconcile succeeded again", failure=failure)

    def _is_new_cause(self, key: K, failure: str) -> bool:
        """Return whether the cause differs from that of the last attempt, ignoring digits."""
        before = self._failures.get(key, "")
        self._failures[key] = failure
        return _DIGITS.sub("0", before) != _DIGITS.sub("0", failure)
