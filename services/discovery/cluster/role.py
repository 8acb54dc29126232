"""Discovery's cluster role from start to stop: what it follows, and what it does while it leads."""

import random as chance
from typing import Final

from libs.bus.mirror import Mirror
from libs.bus.port import Bus
from libs.kube.client import Kube
from libs.kube.foreign import ForeignOperator
from libs.kube.lease import Lease
from libs.kube.lease.fence import Fenced
from libs.kube.lease.term import NotLeading, Term
from libs.kube.metering import Meters
from libs.kube.transport import Transport
from libs.runtime.clock import Clock
from libs.runtime.ids import Ids
from libs.runtime.logs import logger
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from services.discovery.cluster.hands import Hands
from services.discovery.cluster.meters import DiscoveryMeters
from services.discovery.cluster.settings import DiscoveryClusterSettings
from services.discovery.cluster.sources import Sources
from services.discovery.cluster.things import MANAGER
from services.discovery.cluster.work import NAME, Work

LEASE: Final = "sluice-discovery-cluster"

_log = logger()


async def run(
    settings: DiscoveryClusterSettings,
    *,
    kube: Transport,
    bus: Bus,
    clock: Clock,
    random: chance.Random,
    ids: Ids,
    metrics: Metrics,
    service: Service,
) -> None:
    """Start it."""
    mirror = Mirror(bus=bus, clock=clock, cluster=bus.identity.cluster)
    role = _Role(
        settings, kube=kube, mirror=mirror, clock=clock, random=random, ids=ids, metrics=metrics
    )
    await service.enter("reports", mirror)
    role.start(service)


class _Role:
    def __init__(
        self,
        settings: DiscoveryClusterSettings,
        *,
        kube: Transport,
        mirror: Mirror,
        clock: Clock,
        random: chance.Random,
        ids: Ids,
        metrics: Metrics,
    ) -> None:
        asking = Kube(kube, manager=MANAGER, clock=clock)
        self._transport = kube
        self._mirror = mirror
        self._clock = clock
        self._ids = ids
        self._sources = Sources(asking, clock=clock, random=random)
        self._foreign = ForeignOperator()
        self._meters = DiscoveryMeters(metrics)
        self._controllers = Meters(metrics, controllers=[NAME])
        self._lease = Lease(
            kube=asking,
            namespace=settings.namespace,
            name=LEASE,
            identity=settings.pod_name,
            clock=clock,
            random=random,
            ids=ids,
        )

    def start(self, service: Service) -> None:
        """What it follows, it follows also while another leads."""
        self._sources.leases.cache.on_change(
            lambda before, after: self._foreign.see(before, after, now=self._clock.monotonic())
        )
        for source in self._sources.all():
            service.run_forever(f"follow {source.name}", source.run())
        service.run_forever("lead", self._lead())
        service.ready_when("sources", lambda: self._sources.unknown() or None)

    async def _lead(self) -> None:
        while True:
            try:
                async with self._lease.held() as term:
                    await self._work(term).run()
            except NotLeading as over:
                _log.warning("leads no more", why=str(over))

    def _work(self, term: Term) -> Work:
        fenced = Fenced(self._transport, term, clock=self._clock)
        kube = Kube(fenced, manager=MANAGER, clock=self._clock)
        return Work(
            sources=self._sources,
            mirror=self._mirror,
            foreign=self._foreign,
            hands=Hands(kube, sources=self._sources, meters=self._meters),
            meters=self._meters,
            controllers=self._controllers,
            clock=self._clock,
            ids=self._ids,
        )
