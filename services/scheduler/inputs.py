"""What the scheduler stands on as long as its process lives, whoever leads: caches, reports, slots.

Nothing is decided here, and nothing is written but what a deleted Node leaves on the bus.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from libs.bus.events import EventPublisher
from libs.bus.heartbeats import HeartbeatMonitor
from libs.bus.port import Bus
from libs.bus.reports import ReportCache
from libs.bus.retry import BusRetry
from libs.bus.slot_cache import SlotCache
from libs.contracts import streams, subjects
from libs.kube.client import Kube
from libs.kube.events import EventRecorder
from libs.kube.gpu_operator import GpuOperatorDetector
from libs.runtime.env import Env
from libs.runtime.service import Service
from services.scheduler.informers import Informers
from services.scheduler.leader import WakeSignal
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.pod_cache import PodCache
from services.scheduler.snapshot.freshness import FreshnessTracker


class Inputs:
    """It follows everything from its start on; whoever leads finds it read."""

    def __init__(
        self,
        kube: Kube,
        bus: Bus,
        *,
        namespace: str,
        env: Env,
    ) -> None:
        self.bus = bus
        self.env = env
        self.namespace = namespace
        self.wake_signal = WakeSignal(env.clock)
        self.informers = Informers(kube, namespace=namespace, env=env)
        foreign = GpuOperatorDetector()
        self.informers.leases.cache.on_change(
            lambda before, after: foreign.observe(before, after, now=env.clock.monotonic())
        )
        self.kube_events = EventRecorder(kube=kube, env=env)
        self.metrics = SchedulerMetrics(env.metrics)
        self.publisher = EventPublisher(bus=bus, env=env, on_dropped=self.metrics.event_dropped)
        cluster = bus.identity.cluster
        self.reports = ReportCache(bus=bus, clock=env.clock, cluster=cluster)
        self.heartbeats = HeartbeatMonitor(bus=bus, clock=env.clock, cluster=cluster)
        self._touched: Callable[[str], None] = _ignore
        self.slot_cache = SlotCache(on_change=self._touch)
        self.pod_cache = PodCache(kube, env=env, on_change=self._touch)
        self.freshness = FreshnessTracker(
            informers=self.informers,
            foreign=foreign,
            bus=bus,
            reports=self.reports,
            slot_cache=self.slot_cache,
            clock=env.clock,
        )

    async def open(self, service: Service) -> None:
        """Have the streams there, and follow them from the start on."""
        patience = BusRetry(env=self.env)
        service.ready_when("bus", lambda: patience.reason or None)
        for stream in streams.STREAMS:
            await patience.until_success(partial(self.bus.ensure, stream))
        await patience.until_success(lambda: service.enter("beats", self.heartbeats))
        await service.enter("reports", self.reports)
        await service.enter("slots", self.slot_cache.follow(self.bus))

    def start(self, service: Service) -> None:
        """Everything that runs until the service stops."""
        for source in self.informers.all():
            service.run_forever(f"follow {source.name}", source.run())
        service.run_forever("events", self.kube_events.run())
        service.run_forever("telling", self.publisher.run())
        service.run_forever("pods", self.pod_cache.run())
        service.ready_when("sources", lambda: self.informers.why_not_synced() or None)
        unlisten = self.bus.link.watch(lambda _up: self.wake_signal.notify())
        service.on_drain("link", _stopping(unlisten))

    async def wait_for_sync(self) -> None:
        """Return once it is known what there is."""
        while self.informers.why_not_synced() or not self.freshness.is_bus_current:
            await self.env.clock.sleep(0.05)

    def on_node_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        """Tell whoever leads which node is another one, until the returned function is called."""
        self._touched = handler

        def end() -> None:
            self._touched = _ignore

        return end

    async def purge_node(self, name: str) -> None:
        """A Node was deleted: nothing on the bus is of it."""
        at = {"cluster": self.bus.identity.cluster, "node": name, "component": subjects.ANY}
        reports = subjects.State(**at, kind=subjects.ANY)
        answers = subjects.State(**at, kind=subjects.ANY, asker=subjects.ANY)
        await self.bus.purge(streams.STATE, str(reports))
        await self.bus.purge(streams.STATE, str(answers))
        await self.bus.purge(streams.COMMANDS, str(subjects.Command(**at)))
        self.reports.forget(name)
        self.heartbeats.forget(name)
        self.slot_cache.forget(name)

    def _touch(self, name: str) -> None:
        self._touched(name)


def _ignore(_name: str) -> None:
    """Nobody leads: nothing is to be looked at."""


def _stopping(end: Callable[[], None]) -> Callable[[], Coroutine[Any, Any, None]]:
    async def called() -> None:
        end()

    return called
