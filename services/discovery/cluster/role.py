"""Discovery's cluster role from start to stop: what it follows, and what it does while it leads."""

from typing import Final

from libs.bus.connect import NatsSettings
from libs.bus.port import Bus
from libs.bus.reports import ReportCache
from libs.kube.client import Kube
from libs.kube.gpu_operator import GpuOperatorDetector
from libs.kube.lease.election import LeaderElector
from libs.kube.lease.fence import FencedTransport
from libs.kube.lease.term import NotLeading, Term
from libs.kube.metrics import ControllerMetrics
from libs.kube.transport import Transport
from libs.runtime.env import Env
from libs.runtime.logs import logger
from libs.runtime.process import ProcessSettings
from libs.runtime.service import Service
from services.discovery.cluster.controller import NAME, LabelController
from services.discovery.cluster.informers import Informers
from services.discovery.cluster.metrics import DiscoveryMetrics
from services.discovery.cluster.resources import MANAGER
from services.discovery.cluster.writes import Writes


class DiscoveryClusterSettings(ProcessSettings, frozen=True, kw_only=True):
    """Settings of discovery's cluster role."""

    nats: NatsSettings = NatsSettings()
    kubeconfig: str = ""
    """Empty: as the environment or the pod says."""
    namespace: str
    """Of the lease."""
    pod_name: str = "discovery-cluster"
    """By which people recognise who holds the lease."""


LEASE: Final = "sluice-discovery-cluster"

_log = logger()


async def run(
    settings: DiscoveryClusterSettings,
    *,
    kube: Transport,
    bus: Bus,
    env: Env,
    service: Service,
) -> None:
    """Start it."""
    mirror = ReportCache(bus=bus, clock=env.clock, cluster=bus.identity.cluster)
    role = _Role(settings, kube=kube, reports=mirror, env=env)
    await service.enter("reports", mirror)
    role.start(service)


class _Role:
    def __init__(
        self,
        settings: DiscoveryClusterSettings,
        *,
        kube: Transport,
        reports: ReportCache,
        env: Env,
    ) -> None:
        asking = Kube(kube, manager=MANAGER, clock=env.clock)
        self._env = env
        self._transport = kube
        self._mirror = reports
        self._clock = env.clock
        self._sources = Informers(asking, env=env)
        self._foreign = GpuOperatorDetector()
        self._meters = DiscoveryMetrics(env.metrics)
        self._controllers = ControllerMetrics(env.metrics, controllers=[NAME])
        self._lease = LeaderElector(
            kube=asking,
            namespace=settings.namespace,
            name=LEASE,
            identity=settings.pod_name,
            env=env,
        )

    def start(self, service: Service) -> None:
        """What it follows, it follows also while another leads."""
        self._sources.leases.cache.on_change(
            lambda before, after: self._foreign.observe(before, after, now=self._clock.monotonic())
        )
        for source in self._sources.all():
            service.run_forever(f"follow {source.name}", source.run())
        service.run_forever("lead", self._lead())
        service.ready_when("sources", lambda: self._sources.why_not_synced() or None)

    async def _lead(self) -> None:
        while True:
            try:
                async with self._lease.lead() as term:
                    await self._work(term).run()
            except NotLeading as over:
                _log.warning("leads no more", why=str(over))

    def _work(self, term: Term) -> LabelController:
        fenced = FencedTransport(self._transport, term, clock=self._clock)
        kube = Kube(fenced, manager=MANAGER, clock=self._clock)
        return LabelController(
            informers=self._sources,
            reports=self._mirror,
            foreign=self._foreign,
            writes=Writes(kube, informers=self._sources, metrics=self._meters),
            metrics=self._meters,
            controller_metrics=self._controllers,
            env=self._env,
        )
