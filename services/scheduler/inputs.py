"""What the scheduler follows while its process lives, leader or not: caches, reports, slots.

A new leader finds them synced.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from libs.bus.events import EventPublisher
from libs.bus.heartbeats import HeartbeatMonitor
from libs.bus.port import Bus, BusRetry
from libs.bus.reports import ReportCache
from libs.bus.slot_cache import SlotCache
from libs.bus.streams import keep_streams
from libs.contracts import subjects
from libs.contracts.node import DRIVER_LABEL
from libs.contracts.subjects import Stream
from libs.kube.client import Kube
from libs.kube.events import EventRecorder
from libs.kube.informer import Informer, missing_definitions, run_informers
from libs.kube.lease.record import GpuOperatorDetector
from libs.policy.render.agents import AGENTS
from libs.rollout.views.fleet import Instant, SourceState, Visibility
from libs.runtime.clock import Clock, SteadyClock
from libs.runtime.env import Env
from libs.runtime.logs import logger
from libs.runtime.service import Service
from services.cluster_role import LeadingInformers
from services.scheduler import resources
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.pod_cache import PodCache

CLOCK_TOLERANCE: Final = 2.0
"""Seconds that the clocks of machines may differ. The server's time is known to the second."""

_log = logger()

_AGENTS: Final = ",".join(sorted(agent.app for agent in AGENTS))


def by_node(pod: resources.Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


class Informers(LeadingInformers):
    def __init__(self, kube: Kube, *, namespace: str, env: Env) -> None:
        super().__init__(kube, env=env)
        self._clock = env.clock
        self.nodes = self.add(resources.NODES)
        self.driver_pods = self.add(
            resources.PODS, labels=DRIVER_LABEL, indexes={"node": by_node}, namespace=namespace
        )
        self.rollouts = self.add(resources.ROLLOUTS)
        self.policies = self.add_each(resources.POLICIES)
        self.gpu_clusters = self.add(resources.GPU_CLUSTERS)
        self.daemon_sets = self.add(resources.DAEMON_SETS, labels=DRIVER_LABEL, namespace=namespace)
        self.other_pods = self.add(
            resources.PODS,
            labels=f"!{DRIVER_LABEL},app notin ({_AGENTS})",
            indexes={"node": by_node},
            namespace=namespace,
        )
        """Pods in the namespace that are neither drivers nor agents: NATS, the cluster roles."""
        self.config_maps = self.add(resources.CONFIG_MAPS, namespace=namespace)
        """Any of them may be the one with MIG configurations that a policy names."""
        self.watch_gpu_operator()
        self.resource_claims = Informer(kube, resources.RESOURCE_CLAIMS, env=env)
        """Not added, for nothing waits for them: only pods that name one are not known without."""
        self._sources: Mapping[str, tuple[Informer[Any], ...]] = {
            "nodes": (self.nodes,),
            "pods": (self.driver_pods,),
            "rollouts": (self.rollouts,),
            "policies": (*self.policies.values(), self.gpu_clusters),
            "daemonsets": (self.daemon_sets,),
        }
        self._probed: dict[str, float] = {}

    def why_no_rollouts(self) -> str:
        """Return why Rollouts can be neither read nor written; empty if they can."""
        return missing_definitions([self.rollouts]) or self.rollouts.why_not_synced

    def source_states(self) -> dict[str, SourceState]:
        """Return how current each source is."""
        now = self._clock.now()
        return {
            name: SourceState(
                proved=now - max(informer.age for informer in source),
                revision=str(max(informer.cache.revision for informer in source)),
                probed=self._probed.get(name),
            )
            for name, source in self._sources.items()
        }

    def clock_moved(self, seconds: float) -> None:
        self._probed = {name: at + seconds for name, at in self._probed.items()}

    async def verify_source(self, name: str) -> None:
        """Verify that a source is current; `source_states` has the outcome."""
        self._probed[name] = self._clock.now()
        async with asyncio.TaskGroup() as probes:
            for informer in self._sources[name]:
                probes.create_task(informer.verify_current())


MAX_OUTAGES: Final = 100
"""Ended outages of the bus that are remembered."""


class WakeSignal:
    """Ends the wait of the leader's loop early."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def notify(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a notification, for at most `seconds`."""
        if self._event.is_set():
            self._event.clear()
            return
        sleep = asyncio.create_task(self._clock.sleep(seconds), name="wake timeout")
        notified = asyncio.create_task(self._event.wait(), name="wake signal")
        try:
            await asyncio.wait({sleep, notified}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sleep, notified):
                task.cancel()
            await asyncio.wait({sleep, notified})
        self._event.clear()


class Inputs:
    def __init__(
        self,
        kube: Kube,
        bus: Bus,
        *,
        namespace: str,
        streams: Sequence[Stream],
        env: Env,
    ) -> None:
        self.clock = SteadyClock(env.clock)
        """The time of all decisions: limits are not to move with the clock of this machine."""
        env = replace(env, clock=self.clock)
        self.bus = bus
        self._streams = streams
        self.env = env
        self.namespace = namespace
        self.wake_signal = WakeSignal(env.clock)
        self.informers = Informers(kube, namespace=namespace, env=env)
        self._gpu_operator = GpuOperatorDetector()
        self._gpu_operator.follow(self.informers.leases.cache, env.clock)
        self.kube_events = EventRecorder(kube=kube, env=env)
        self.metrics = SchedulerMetrics(env.metrics)
        self.publisher = EventPublisher(bus=bus, env=env, on_dropped=self.metrics.event_dropped)
        cluster = bus.identity.cluster
        self.reports = ReportCache(bus=bus, clock=env.clock, cluster=cluster)
        self.heartbeats = HeartbeatMonitor(bus=bus, clock=env.clock, cluster=cluster)
        self._node_handler: Callable[[str], None] | None = None
        self.slot_cache = SlotCache(on_change=self._node_changed)
        self.pod_cache = PodCache(kube, env=env, on_change=self._node_changed)
        self._down_since: float | None = None
        self._outages: tuple[tuple[float, float], ...] = ()

    async def open(self, service: Service) -> None:
        """Ensure that the streams exist, and follow them from their start."""
        retry = BusRetry(env=self.env)
        service.ready_when("bus", lambda: retry.reason or None)
        for stream in self._streams:
            await retry.until_success(partial(self.bus.ensure, stream))
        await retry.until_success(lambda: service.enter("beats", self.heartbeats))
        await service.enter("reports", self.reports)
        await service.enter("slots", self.slot_cache.follow(self.bus))

    def start(self, service: Service) -> None:
        """Start the tasks that run until the service stops."""
        self.informers.follow(service)
        run_informers([self.informers.resource_claims], service)
        service.run_forever("events", self.kube_events.run())
        service.run_forever("publisher", self.publisher.run())
        service.run_forever("pods", self.pod_cache.run())
        service.run_forever(
            "streams", keep_streams(bus=self.bus, clock=self.env.clock, streams=self._streams)
        )
        unwatch = self.bus.link.watch(lambda _up: self.wake_signal.notify())

        async def drain_link() -> None:
            unwatch()

        service.on_drain("link", drain_link)

    def set_clock(self, *, server_ahead: float) -> None:
        """Set the time of a term: the machine's, unless the API server's is another.

        All leaders share the API server. By its time a new one does not take limits that an earlier
        one has set for passed, or for far away, because the clocks of their machines differ.
        """
        is_wrong = abs(server_ahead) > CLOCK_TOLERANCE
        if is_wrong:
            _log.warning(
                "the clock of this machine is wrong: this term goes by the API server's",
                ahead_seconds=round(-server_ahead),
            )
        before = self.clock.now()
        self.clock.set(ahead=server_ahead if is_wrong else 0.0)
        moved = self.clock.now() - before
        self._outages = tuple((begin + moved, end + moved) for begin, end in self._outages)
        self._down_since = None if self._down_since is None else self._down_since + moved
        self.informers.clock_moved(moved)

    async def wait_for_sync(self) -> None:
        while self.informers.why_not_synced() or not self._is_bus_current:
            await self.env.clock.sleep(0.05)

    def instant(self, epoch: int) -> Instant:
        """Return the present time, and how current each source is."""
        now = self.env.clock.now()
        if not self._is_bus_current:
            self._down_since = now if self._down_since is None else self._down_since
        elif self._down_since is not None:
            self._outages = (*self._outages[-MAX_OUTAGES:], (self._down_since, now))
            self._down_since = None
        visibility = Visibility(
            sources=self.informers.source_states(),
            bus_down_since=self._down_since,
            bus_outages=self._outages,
            no_rollouts=self.informers.why_no_rollouts(),
            foreign_operator=self._gpu_operator.active_holders(now=self.env.clock.monotonic()),
        )
        return Instant(at=now, epoch=epoch, visibility=visibility)

    @property
    def _is_bus_current(self) -> bool:
        return self.bus.link.is_up and self.reports.age == 0.0 and self.slot_cache.is_current

    def on_node_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        """Call `handler` with each node whose slots or pods change; the result ends that."""
        self._node_handler = handler

        def end() -> None:
            self._node_handler = None

        return end

    def _node_changed(self, name: str) -> None:
        if self._node_handler is not None:
            self._node_handler(name)

    async def purge_node(self, name: str) -> None:
        """Remove the reports and slots of a deleted Node from the bus."""
        scope = {"cluster": self.bus.identity.cluster, "node": name, "component": subjects.ANY}
        reports = subjects.State(**scope, kind=subjects.ANY)
        answers = subjects.State(**scope, kind=subjects.ANY, asker=subjects.ANY)
        await self.bus.purge(subjects.STATE, str(reports))
        await self.bus.purge(subjects.STATE, str(answers))
        await self.bus.purge(subjects.COMMANDS, str(subjects.Command(**scope)))
        await self.bus.purge(subjects.COMMANDS, str(subjects.Check(**scope, asker=subjects.ANY)))
        self.reports.forget(name)
        self.heartbeats.forget(name)
        self.slot_cache.forget(name)
