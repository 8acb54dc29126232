"""The process around one or several services: settings, logs, signals, HTTP, metrics, exit code.

Services of one process start and stop together. `libs.runtime.program` starts a process.
"""

import asyncio
import os
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Generic, TypeVar

import msgspec
from prometheus_client import ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from libs.runtime.clock import Clock, SystemClock
from libs.runtime.env import Env, RandomIds
from libs.runtime.fatal import Fatal
from libs.runtime.http import CachedPage, HttpServer, HttpSettings, Page
from libs.runtime.logs import LogSettings, configure, logger
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service, ServicePhase
from libs.runtime.tasks import Tasks
from libs.runtime.values import Duration

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ShutdownHandler:
    """Stop the process at the first signal; end it at once at the second."""

    def __init__(self, *, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._first_signal = ""
        # The thread starts early and waits on a queue, which a signal handler may use at any time.
        self._deadline_started: queue.SimpleQueue[None] = queue.SimpleQueue()
        threading.Thread(target=self._enforce_deadline, name="ending", daemon=True).start()

    def install(self, loop: asyncio.AbstractEventLoop, stop: Callable[[str], None]) -> None:
        """Handle this process's signals; call `stop` on the loop with the name of the signal."""

        # Not `loop.add_signal_handler`: a second signal has to work while a callback hangs.
        def handle(number: int, _frame: object) -> None:
            name = signal.Signals(number).name
            if self._first_signal:
                _exit(
                    f"{name} after {self._first_signal}: exiting with 1 at once, without draining"
                )
            self._first_signal = name
            self.start_deadline()
            if not loop.is_closed():
                loop.call_soon_threadsafe(stop, name)

        for number in STOP_SIGNALS:
            signal.signal(number, handle)

    def start_deadline(self) -> None:
        """Give the process `grace_seconds` from the first call on to end by itself."""
        self._deadline_started.put(None)

    def _enforce_deadline(self) -> None:
        self._deadline_started.get()
        time.sleep(self._grace_seconds)
        _exit(f"the shutdown hung for {self._grace_seconds:g} s: exiting with 1 at once")


def _exit(message: str) -> None:
    # No logger: a thread that hangs or was interrupted may hold its lock.
    os.write(2, f"{message}\n".encode())
    os._exit(1)


HANG_SECONDS = 5.0
"""Seconds after the drain deadline until a thread outside the event loop ends the process."""
TICK_SECONDS = 1.0
STALL_SECONDS = 15.0
"""Well above any pause of a busy event loop, well below the timeout of a liveness probe."""

_log = logger()


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of every process; the settings of a service are a subclass."""

    log: LogSettings = LogSettings()
    metrics: HttpSettings = HttpSettings()
    """Where `/metrics` is served."""
    probes: HttpSettings = HttpSettings(port=8081)
    """Where `/livez` and `/readyz` are served, which readers of metrics must not delay."""
    drain: Duration = Duration(25)


S = TypeVar("S", bound=ProcessSettings)


class LoopWatchdog:
    """Detect that the event loop has stalled."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_tick = clock.monotonic()

    async def run(self) -> None:
        while True:
            self._last_tick = self._clock.monotonic()
            await self._clock.sleep(TICK_SECONDS)

    def stall_reasons(self) -> list[str]:
        """Return why the process should be restarted; empty while the loop runs."""
        stalled = self._clock.monotonic() - self._last_tick
        return (
            [f"the event loop has been stalled for {stalled:.0f} s"]
            if stalled > STALL_SECONDS
            else []
        )


class Process(Generic[S]):
    """What the services of one process share.

    `metrics_address` and `probes_address` are where its HTTP servers listen.
    """

    def __init__(self, settings: S, *, env: Env, on_drain: Callable[[], None]) -> None:
        self.settings = settings
        self.env = env
        self.metrics_address = (settings.metrics.host, settings.metrics.port)
        self.probes_address = (settings.probes.host, settings.probes.port)
        self._on_drain = on_drain
        self._watchdog = LoopWatchdog(env.clock)
        self._metrics_page = CachedPage(self._metrics, env.clock)
        self._services: list[Service] = []
        self._stop_reason = ""
        self._failure: Fatal | None = None

    async def run(self, services: "Mapping[str, Start[S]]") -> None:
        """Start all services and wait for their end; raise the first failure as `Fatal`."""
        self._services = [self._service(name) for name in services]
        probe_pages = {"/livez": self._livez, "/readyz": self._readyz}
        tasks = Tasks("process", failed=self._fail)
        async with (
            HttpServer(self.settings.probes, probe_pages) as probes,
            HttpServer(self.settings.metrics, {"/metrics": self._metrics_page}) as metrics,
        ):
            self.probes_address = host, port = probes.address
            _log.info("probe server started", host=host, port=port)
            self.metrics_address = host, port = metrics.address
            _log.info("metrics server started", host=host, port=port)
            tasks.forever("heartbeat", self._watchdog.run())
            try:
                async with asyncio.TaskGroup() as group:
                    for service, start in zip(self._services, services.values(), strict=True):
                        group.create_task(self._run_service(service, start), name=service.name)
            finally:
                await tasks.close()
        if self._failure is not None:
            raise self._failure

    def stop(self, why: str) -> None:
        """Stop every service in an orderly way."""
        self._stop_reason = self._stop_reason or why
        for service in self._services:
            service.stop(why)

    def _service(self, name: str) -> Service:
        def phase_changed(phase: ServicePhase) -> None:
            if phase is ServicePhase.DRAINING:
                self._on_drain()
                self.stop(f"{name} is draining")

        service = Service(
            name,
            clock=self.env.clock,
            drain_seconds=self.settings.drain,
            on_phase=phase_changed,
        )
        self.env.metrics.watch(service)
        if self._stop_reason:
            service.stop(self._stop_reason)
        return service

    async def _run_service(self, service: Service, start: "Start[S]") -> None:
        try:
            async with service:
                await start(self, service)
        except Fatal as fatal:
            self._failure = self._failure or fatal

    def _fail(self, fatal: Fatal) -> None:
        self._failure = self._failure or fatal
        self.stop(str(fatal))

    def _livez(self) -> Page:
        failures = [str(service.failure) for service in self._services if service.failure]
        return probe_page([*self._watchdog.stall_reasons(), *failures])

    def _readyz(self) -> Page:
        return probe_page([why for service in self._services for why in service.unready_reasons()])

    def _metrics(self) -> Page:
        return Page(self.env.metrics.render(), content_type=CONTENT_TYPE_PLAIN_0_0_4)


Start = Callable[[Process[S], Service], Awaitable[None]]
"""Start a service: open what it needs, start its tasks, and return when it is ready."""


def probe_page(reasons: Sequence[str]) -> Page:
    """Return 200 if there are no reasons, else 503 with one reason per line."""
    if not reasons:
        return Page(b"ok\n")
    return Page("".join(f"{reason}\n" for reason in reasons).encode(), status=503)


def run_process(settings: S, services: Mapping[str, Start[S]]) -> int:
    """Run services until a signal or a failure, and return the exit code of the process."""
    clock = SystemClock()
    configure(settings.log, stream=sys.stderr, clock=clock)
    shutdown = ShutdownHandler(grace_seconds=settings.drain + HANG_SECONDS)
    metrics = Metrics(version=version("sluice"))
    ProcessCollector(registry=metrics.registry)
    process = Process(
        settings,
        env=Env(clock=clock, ids=RandomIds(), random=random.Random(), metrics=metrics),
        on_drain=shutdown.start_deadline,
    )
    with asyncio.Runner() as runner:
        shutdown.install(runner.get_loop(), process.stop)
        try:
            runner.run(process.run(services))
        except Fatal as fatal:
            _log.critical("process failed", exc_info=fatal)
            return 1
    return 0
