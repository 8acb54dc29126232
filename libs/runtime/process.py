"""The process around one or several services: settings, logs, signals, HTTP, metrics, exit code.

A service is handed what the process has, and never reaches for it. What services do is not known
here; that they live and die together is decided here. `libs.runtime.program` starts one.
"""

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Generic, TypeVar

import msgspec
from prometheus_client import ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from libs.runtime import health
from libs.runtime.clock import SystemClock
from libs.runtime.env import Env
from libs.runtime.fatal import Fatal
from libs.runtime.http import HttpServer, HttpSettings, Page
from libs.runtime.ids import RandomIds
from libs.runtime.logs import LogSettings, configure, logger
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service, ServicePhase
from libs.runtime.shutdown import ShutdownHandler
from libs.runtime.tasks import Tasks
from libs.runtime.values import Duration

HANG_SECONDS = 5.0
"""A process that is still there so long after its drain deadline is ended from outside its loop."""

_log = logger()


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What every process can be told; the settings of a service are a subclass."""

    log: LogSettings = LogSettings()
    http: HttpSettings = HttpSettings()
    drain: Duration = Duration(25)


S = TypeVar("S", bound=ProcessSettings)


class Process(Generic[S]):
    """What the services of one process share; `address` is where its HTTP listens."""

    def __init__(
        self,
        settings: S,
        *,
        env: Env,
        on_drain: Callable[[], None],
    ) -> None:
        self.settings = settings
        self.env = env
        self.address = (settings.http.host, settings.http.port)
        self._on_drain = on_drain
        self._heartbeat = health.LoopWatchdog(env.clock)
        self._services: list[Service] = []
        self._stopped = ""
        self._failure: Fatal | None = None

    async def run(self, services: "Mapping[str, Start[S]]") -> None:
        """Start all services and wait for their end; the first failure comes out as `Fatal`."""
        self._services = [self._service(name) for name in services]
        pages = {"/livez": self._livez, "/readyz": self._readyz, "/metrics": self._metrics}
        tasks = Tasks("process", failed=self._fail)
        async with HttpServer(self.settings.http, pages) as http:
            self.address = host, port = http.address
            _log.info("http server started", host=host, port=port)
            tasks.forever("heartbeat", self._heartbeat.run())
            try:
                async with asyncio.TaskGroup() as lives:
                    for service, start in zip(self._services, services.values(), strict=True):
                        lives.create_task(self._live(service, start), name=service.name)
            finally:
                await tasks.close()
        if self._failure is not None:
            raise self._failure

    def stop(self, why: str) -> None:
        """Ask every service for an orderly end."""
        self._stopped = self._stopped or why
        for service in self._services:
            service.stop(why)

    def _service(self, name: str) -> Service:
        service = Service(
            name,
            clock=self.env.clock,
            drain_seconds=self.settings.drain,
            on_phase=lambda phase: self._moved(name, phase),
        )
        self.env.metrics.watch(service)
        if self._stopped:
            service.stop(self._stopped)
        return service

    async def _live(self, service: Service, start: "Start[S]") -> None:
        try:
            async with service:
                await start(self, service)
        except Fatal as fatal:
            self._failure = self._failure or fatal

    def _moved(self, name: str, phase: ServicePhase) -> None:
        if phase is ServicePhase.DRAINING:
            self._on_drain()
            self.stop(f"{name} is draining")

    def _fail(self, fatal: Fatal) -> None:
        self._failure = self._failure or fatal
        self.stop(str(fatal))

    def _livez(self) -> Page:
        failures = [str(service.failure) for service in self._services if service.failure]
        return health.probe_page([*self._heartbeat.stall_reasons(), *failures])

    def _readyz(self) -> Page:
        return health.probe_page(
            [why for service in self._services for why in service.unready_reasons()]
        )

    def _metrics(self) -> Page:
        return Page(self.env.metrics.render(), content_type=CONTENT_TYPE_PLAIN_0_0_4)


Start = Callable[[Process[S], Service], Awaitable[None]]
"""The body of a service's start: open what it needs, start its tasks, return when it is ready."""


def run_process(settings: S, services: Mapping[str, Start[S]]) -> int:
    """These services until a signal or a failure, in a process of their own; its exit code."""
    clock = SystemClock()
    configure(settings.log, stream=sys.stderr, clock=clock)
    ending = ShutdownHandler(grace_seconds=settings.drain + HANG_SECONDS)
    metrics = Metrics(version=version("sluice"))
    ProcessCollector(registry=metrics.registry)
    process = Process(
        settings,
        env=Env(clock=clock, ids=RandomIds(), random=random.Random(), metrics=metrics),
        on_drain=ending.start_deadline,
    )
    with asyncio.Runner() as runner:
        ending.install(runner.get_loop(), process.stop)
        try:
            runner.run(process.run(services))
        except Fatal as fatal:
            _log.critical("process failed", exc_info=fatal)
            return 1
    return 0
