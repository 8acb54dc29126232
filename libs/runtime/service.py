"""One service from start to stop: its phases, its tasks and its resources.

Signals, HTTP and settings belong to the process. A service uses only the clock that is passed
to it, so that a simulation runs it in virtual time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from enum import StrEnum
from types import TracebackType
from typing import Any, Self, TypeVar

import structlog

from libs.runtime.clock import Clock
from libs.runtime.fatal import Fatal, describe_error, fatal
from libs.runtime.logs import logger
from libs.runtime.tasks import Tasks, attempt, bounded

T = TypeVar("T")
ReadinessCheck = Callable[[], str | None]
CLOSE_SECONDS = 3.0
"""Seconds for closing all resources, after the drain deadline."""

_log = logger()


class ServicePhase(StrEnum):
    """Phases of a service, in the order in which it passes through them."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"


class Service:
    """Start in the body of `async with`; be ready after it; end by `stop` or `fail`.

    A stop goes in this order: intakes (`on_drain`, in the order of registration), tasks of
    `run_forever`, tasks of `run`, then resources, last entered first. A failure leaves the
    `async with` as a `Fatal`; a stop is not an error. Cancelling the task skips the draining.
    """

    def __init__(
        self,
        name: str,
        *,
        clock: Clock,
        drain_seconds: float = 25.0,
        on_phase: Callable[[ServicePhase], None] | None = None,
    ) -> None:
        self.name = name
        self.phase = ServicePhase.STARTING
        self.failure: Fatal | None = None
        self._clock = clock
        self._drain_seconds = drain_seconds
        self._on_phase = on_phase
        self._end = asyncio.Event()
        self._tasks = Tasks(name, failed=self.fail)
        self._resources = AsyncExitStack()
        self._intakes: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        self._checks: list[tuple[str, ReadinessCheck]] = []
        self._entering = ""
        self._owner: asyncio.Task[object] | None = None
        self._cancels_before = 0
        self._in_body = False
        self._interrupted = False
        self._log_context: Mapping[str, Any] = {}
        self._close_by = 0.0

    async def enter(self, name: str, resource: AbstractAsyncContextManager[T]) -> T:
        """Open a resource until the service stops; a close that fails is only a warning."""
        self._entering = name
        value = await resource.__aenter__()
        self._entering = ""
        self._resources.push_async_callback(self._close_resource, name, resource)
        return value

    def run_forever(self, name: str, coroutine: Coroutine[Any, Any, object]) -> None:
        """Start a task that lasts as long as the service; its error or return fails the service."""
        self._tasks.forever(name, coroutine)

    def run(self, name: str, coroutine: Coroutine[Any, Any, object]) -> None:
        """Start a task that ends by itself and that a stop lets finish; it fails by raising."""
        self._tasks.finite(name, coroutine)

    def on_drain(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        """Register the closing of an intake, so that no new work arrives during the stop."""
        self._intakes.append((name, step))

    def ready_when(self, name: str, check: ReadinessCheck) -> None:
        """Register a check that returns why the service cannot serve now, or None if it can."""
        self._checks.append((name, check))

    def stop(self, why: str) -> None:
        """End the service in an orderly way; a start in progress is cut short."""
        if not self._end.is_set():
            _log.info("stop requested", service=self.name, why=why)
            self._wake()

    def fail(self, reason: str | BaseException) -> None:
        """End the service because of `reason`; only the first one counts, none after a stop."""
        if self._end.is_set():
            error = reason if isinstance(reason, str) else describe_error(reason)
            _log.warning("failure while stopping", service=self.name, error=error)
            return
        self.failure = fatal(reason, what=self.name)
        self._wake()

    def unready_reasons(self) -> list[str]:
        """Return why the service is not ready; empty when it is."""
        if self.phase in (ServicePhase.DRAINING, ServicePhase.STOPPED):
            return [f"{self.name}: {self.phase}"]
        reasons = [
            f"{self.name}: {name}: {why}" for name, check in self._checks if (why := check())
        ]
        if self.phase is ServicePhase.STARTING:
            detail = f" (opening {self._entering})" if self._entering else ""
            reasons.insert(0, f"{self.name}: {self.phase}{detail}")
        return reasons

    async def __aenter__(self) -> Self:
        self._owner = asyncio.current_task()
        self._cancels_before = self._owner.cancelling() if self._owner else 0
        self._in_body = True
        self._log_context = structlog.contextvars.bind_contextvars(service=self.name)
        self._enter_phase(ServicePhase.STARTING)
        if self._end.is_set():
            self._wake()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._in_body = False
        try:
            if not self._ends_orderly(error):
                return False
            if not self._end.is_set():
                self._enter_phase(ServicePhase.READY)
                await self._end.wait()
            self._enter_phase(ServicePhase.DRAINING)
            await self._drain()
        finally:
            await self._close()
            structlog.contextvars.reset_contextvars(**self._log_context)
        if self.failure is not None:
            raise self.failure
        return True

    def _ends_orderly(self, error: BaseException | None) -> bool:
        """Return whether the service drains after its body; False where its task was cancelled."""
        if self._interrupted and self._owner is not None:
            if isinstance(error, Exception):
                self.fail(error)  # only logged: the body was cut short by the stop
            return self._owner.uncancel() <= self._cancels_before
        if isinstance(error, Fatal):
            self.fail(error)
        elif isinstance(error, Exception):
            self.fail(fatal(error, what=f"opening {self._entering}" if self._entering else "start"))
        return error is None or isinstance(error, Exception)

    def _wake(self) -> None:
        self._end.set()
        # Not at once: a task that cancels itself would be interrupted at some later await.
        if self._owner is not None:
            asyncio.get_running_loop().call_soon(self._interrupt)

    def _interrupt(self) -> None:
        if self._owner is not None and self._in_body and not self._interrupted:
            self._interrupted = True
            self._owner.cancel()

    def _enter_phase(self, phase: ServicePhase) -> None:
        self.phase = phase
        _log.info("phase entered", service=self.name, phase=phase)
        if self._on_phase is not None:
            self._on_phase(phase)

    async def _drain(self) -> None:
        until = self._clock.monotonic() + self._drain_seconds
        for name, step in self._intakes:
            await self._run_step(f"close intake {name}", step(), until=until)
        if self._clock.monotonic() >= until:
            return  # `_close` cancels the tasks that still run
        await self._run_step("stop lasting tasks", self._tasks.stop_forever(), until=until)
        await self._run_step("finish work in flight", self._tasks.join(), until=until)

    async def _close(self) -> None:
        self._close_by = self._clock.monotonic() + CLOSE_SECONDS
        try:
            await self._run_step("cancel tasks", self._tasks.close(), until=self._close_by)
        finally:
            await self._resources.aclose()
            self._enter_phase(ServicePhase.STOPPED)

    async def _close_resource(self, name: str, resource: AbstractAsyncContextManager[Any]) -> None:
        closing = resource.__aexit__(None, None, None)
        await self._run_step(f"close {name}", closing, until=self._close_by)

    async def _run_step(self, step: str, awaitable: Awaitable[object], *, until: float) -> None:
        seconds = max(0.0, until - self._clock.monotonic())
        error = await attempt(bounded(awaitable, seconds=seconds, clock=self._clock))
        if error is not None:
            running = self._tasks.running()
            _log.warning(
                "stop step failed", step=step, error=describe_error(error), running=running
            )
