"""A controller's loop: keys come from a queue, a function brings each to where it should be.

The function is told a key and nothing else, finds out for itself how things are, and says how it
went. What it raises is tried again with back-off, and said once for each cause, not for each try. A
key that hangs holds up one place until its time is over, and no other key.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Generic, TypeVar

import msgspec
from structlog.contextvars import bound_contextvars

from libs.kube.errors import TooManyRequests
from libs.kube.metrics import AttemptOutcome, ControllerMetrics
from libs.kube.queue import RETRY_CAP, QueueClosed, WorkQueue
from libs.runtime.env import Env
from libs.runtime.fatal import describe_error
from libs.runtime.logs import logger
from libs.runtime.tasks import attempt, bounded

K = TypeVar("K", bound=Hashable)

_log = logger()
_DIGITS = re.compile(r"\d+")


class Reconciled(msgspec.Struct, frozen=True):
    """Nothing to do until something changes."""


class RequeueAfter(msgspec.Struct, frozen=True):
    """Nothing to do for so many seconds, unless something changes."""

    seconds: float


class ReconcileRefused(msgspec.Struct, frozen=True):
    """It cannot be, and trying again would not help: until something changes, it stays so."""

    why: str


ReconcileResult = Reconciled | RequeueAfter | ReconcileRefused
Reconcile = Callable[[K], Awaitable[ReconcileResult]]


class Controller(Generic[K]):
    """Works on `concurrency` keys at a time, each for `timeout` seconds at most."""

    def __init__(
        self,
        *,
        name: str,
        reconcile: Reconcile[K],
        queue: WorkQueue[K],
        concurrency: int,
        timeout: float,
        grace: float,
        env: Env,
        metrics: ControllerMetrics,
    ) -> None:
        self._name = name
        self._reconcile = reconcile
        self._queue = queue
        self._concurrency = concurrency
        self._timeout = timeout
        self._grace = grace
        self._clock = env.clock
        self._ids = env.ids
        self._meter = metrics.register(name, queue)
        self._troubles: dict[K, str] = {}

    async def run(self) -> None:
        """Until cancelled: then no key is begun, and what is under way has `grace` seconds to end.

        0 for what must stop at once, as when another may lead.
        """
        workers = [
            asyncio.create_task(self._work(), name=f"{self._name}/{number}")
            for number in range(self._concurrency)
        ]
        try:
            await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        except asyncio.CancelledError:
            self._queue.close()
            ending = bounded(asyncio.wait(workers), seconds=self._grace, clock=self._clock)
            await attempt(ending)
            raise
        finally:
            self._queue.close()
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)
        for worker in workers:
            worker.result()

    def failures(self) -> Mapping[K, str]:
        """The keys that failed at the last try, or were refused, and why."""
        return self._troubles

    async def _work(self) -> None:
        while True:
            try:
                key = await self._queue.get()
            except QueueClosed:
                return
            try:
                with bound_contextvars(
                    controller=self._name, key=str(key), reconcile=self._ids.new()[:12]
                ):
                    await self._try(key)
            finally:
                self._queue.done(key)

    async def _try(self, key: K) -> None:
        began = self._clock.monotonic()
        result = await self._result(key)
        seconds = self._clock.monotonic() - began
        match result:
            case Reconciled():
                ended = AttemptOutcome.DONE
                self._went_well(key)
            case RequeueAfter(after):
                ended = AttemptOutcome.LATER
                self._went_well(key)
                self._queue.add_after(key, after)
            case ReconcileRefused(why):
                ended = AttemptOutcome.REFUSED
                self._queue.forget(key)
                if self._is_new_cause(key, why):
                    _log.warning("reconcile was refused", why=why)
            case Exception() as error:
                late = isinstance(error, TimeoutError) and seconds >= self._timeout
                ended = AttemptOutcome.TIMED_OUT if late else AttemptOutcome.FAILED
                asked = error.retry_after if isinstance(error, TooManyRequests) else None
                wait = self._queue.retry(key, at_least=min(asked or 0.0, RETRY_CAP))
                if self._is_new_cause(key, describe_error(error)):
                    _log.warning("reconcile failed", exc_info=error, retry_in=round(wait, 3))
        self._meter.record(ended, seconds=seconds)

    async def _result(self, key: K) -> ReconcileResult | Exception:
        results: list[ReconcileResult] = []

        async def once() -> None:
            working = self._reconcile(key)
            results.append(await bounded(working, seconds=self._timeout, clock=self._clock))

        try:
            error = await attempt(once())
        except asyncio.CancelledError:
            worker = asyncio.current_task()
            if worker is None or worker.cancelling():
                raise
            error = RuntimeError("it awaited something that was cancelled, though it was not")
        return error or results[0]

    def _went_well(self, key: K) -> None:
        self._queue.forget(key)
        trouble = self._troubles.pop(key, None)
        if trouble is not None:
            _log.info("reconcile went well again", trouble=trouble)

    def _is_new_cause(self, key: K, trouble: str) -> bool:
        """Another cause than at the last try; numbers make no difference."""
        before = self._troubles.get(key, "")
        self._troubles[key] = trouble
        return _DIGITS.sub("0", before) != _DIGITS.sub("0", trouble)
