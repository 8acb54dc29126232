"""One service from start to stop: its phases, its tasks, and what it holds open.

It knows no signals, no HTTP, no settings and no other service: those are its process's. It reads
no clock but the one it is given, so that a simulation runs it in virtual time.
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
"""After the drain deadline, all resources together have so long to close."""

_log = logger()


class ServicePhase(StrEnum):
    """Where a service stands; it only ever moves forward."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"


class Service:
    """The body of `async with` is the start; leaving it means ready; it ends by `stop` or `fail`.

    The stop has one order: what feeds work in (`on_drain`, as registered), tasks that run for ever,
    work in flight (`run`), and then what was entered, last first. A failure comes out of the
    `async with` as a `Fatal`; a stop is no error. Who cancels the task instead skips the draining.
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
        self._intake: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        self._checks: list[tuple[str, ReadinessCheck]] = []
        self._entering = ""
        self._owner: asyncio.Task[object] | None = None
        self._cancels_before = 0
        self._in_body = False
        self._interrupted = False
        self._bound: Mapping[str, Any] = {}
        self._close_by = 0.0

    async def enter(self, name: str, resource: AbstractAsyncContextManager[T]) -> T:
        """Open what the service holds until it stops; a close that fails is only a warning."""
        self._entering = name
        value = await resource.__aenter__()
        self._entering = ""
        self._resources.push_async_callback(self._leave_resource, name, resource)
        return value

    def run_forever(self, name: str, coroutine: Coroutine[Any, Any, object]) -> None:
        """Start what lives as long as the service: if it raises or returns, the service fails."""
        self._tasks.forever(name, coroutine)

    def run(self, name: str, coroutine: Coroutine[Any, Any, object]) -> None:
        """Start work that ends by itself, and that a stop lets finish; it fails by raising."""
        self._tasks.finite(name, coroutine)

    def on_drain(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        """Register how an intake is closed, so that no new work arrives once the stop began."""
        self._intake.append((name, step))

    def ready_when(self, name: str, check: ReadinessCheck) -> None:
        """Register what says in words why the service cannot serve now, or None when it can."""
        self._checks.append((name, check))

    def stop(self, why: str) -> None:
        """Ask for an orderly end; also while the service starts, which is then cut short."""
        if not self._end.is_set():
            _log.info("stop requested", service=self.name, why=why)
            self._wake()

    def fail(self, reason: str | BaseException) -> None:
        """End the service because of `reason`; the first one counts, and none after a stop."""
        if self._end.is_set():
            error = reason if isinstance(reason, str) else describe_error(reason)
            _log.warning("failure while stopping", service=self.name, error=error)
            return
        self.failure = fatal(reason, what=self.name)
        self._wake()

    def unready_reasons(self) -> list[str]:
        """Why it is not ready, in words; empty when it is."""
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
        self._bound = structlog.contextvars.bind_contextvars(service=self.name)
        self._move(ServicePhase.STARTING)
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
            if not self._is_ours(error):
                return False
            if not self._end.is_set():
                self._move(ServicePhase.READY)
                await self._end.wait()
            self._move(ServicePhase.DRAINING)
            await self._drain()
        finally:
            await self._close()
            structlog.contextvars.reset_contextvars(**self._bound)
        if self.failure is not None:
            raise self.failure
        return True

    def _is_ours(self, error: BaseException | None) -> bool:
        """Whether the way the body ended leads to an orderly end; else somebody cancels us."""
        if self._interrupted and self._owner is not None:
            if isinstance(error, Exception):
                self.fail(error)  # only said: what a body makes of being cut short is no failure
            return self._owner.uncancel() <= self._cancels_before
        if isinstance(error, Fatal):
            self.fail(error)
        elif isinstance(error, Exception):
            self.fail(fatal(error, what=f"opening {self._entering}" if self._entering else "start"))
        return error is None or isinstance(error, Exception)

    def _wake(self) -> None:
        self._end.set()
        # Not now but soon: a task that is cancelled while it runs meets it at some later await.
        if self._owner is not None:
            asyncio.get_running_loop().call_soon(self._interrupt)

    def _interrupt(self) -> None:
        if self._owner is not None and self._in_body and not self._interrupted:
            self._interrupted = True
            self._owner.cancel()

    def _move(self, phase: ServicePhase) -> None:
        self.phase = phase
        _log.info("phase entered", service=self.name, phase=phase)
        if self._on_phase is not None:
            self._on_phase(phase)

    async def _drain(self) -> None:
        until = self._clock.monotonic() + self._drain_seconds
        for name, step in self._intake:
            await self._try(f"close intake {name}", step(), until=until)
        if self._clock.monotonic() >= until:
            return  # what still runs is cancelled by the close
        await self._try("stop lasting tasks", self._tasks.stop_forever(), until=until)
        await self._try("finish work in flight", self._tasks.join(), until=until)

    async def _close(self) -> None:
        self._close_by = self._clock.monotonic() + CLOSE_SECONDS
        try:
            await self._try("cancel tasks", self._tasks.close(), until=self._close_by)
        finally:
            await self._resources.aclose()
            self._move(ServicePhase.STOPPED)

    async def _leave_resource(self, name: str, resource: AbstractAsyncContextManager[Any]) -> None:
        leaving = resource.__aexit__(None, None, None)
        await self._try(f"close {name}", leaving, until=self._close_by)

    async def _try(self, step: str, awaitable: Awaitable[object], *, until: float) -> None:
        seconds = max(0.0, until - self._clock.monotonic())
        error = await attempt(bounded(awaitable, seconds=seconds, clock=self._clock))
        if error is not None:
            running = self._tasks.running()
            _log.warning(
                "stop step failed", step=step, error=describe_error(error), running=running
            )
