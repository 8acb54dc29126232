"""Driver's cluster role from start to stop: what it follows, and what it does while it leads."""

import random as chance

from sluice.driver.cluster.hands import Hands
from sluice.driver.cluster.meters import DriverMeters
from sluice.driver.cluster.settings import DriverClusterSettings
from sluice.driver.cluster.sources import Sources
from sluice.driver.cluster.survey import Slots, Survey
from sluice.driver.cluster.telling import Telling
from sluice.driver.cluster.things import MANAGER
from sluice.driver.cluster.work import NAME, Work
from sluice.kube.client import Kube
from sluice.kube.events import Events
from sluice.kube.foreign import ForeignOperator
from sluice.kube.lease import Lease
from sluice.kube.lease.fence import Fenced
from sluice.kube.lease.term import NotLeading, Term
from sluice.kube.metering import Meters
from sluice.kube.transport import Transport
from sluice.runtime.clock import Clock
from sluice.runtime.ids import Ids
from sluice.runtime.logs import logger
from sluice.runtime.metrics import Metrics
from sluice.runtime.service import Service

LEASE = "sluice-driver-cluster"

_log = logger()


async def run(
    settings: DriverClusterSettings,
    *,
    kube: Transport,
    slots: Slots,
    clock: Clock,
    random: chance.Random,
    ids: Ids,
    metrics: Metrics,
    service: Service,
) -> None:
    """Start it. `slots` tells which drivers the commands on the bus name, or None while it cannot:
    nothing is collected then.
    """
    role = _Role(
        settings, kube=kube, slots=slots, clock=clock, random=random, ids=ids, metrics=metrics
    )
    role.start(service)


class _Role:
    def __init__(
        self,
        settings: DriverClusterSettings,
        *,
        kube: Transport,
        slots: Slots,
        clock: Clock,
        random: chance.Random,
        ids: Ids,
        metrics: Metrics,
    ) -> None:
        asking = Kube(kube, manager=MANAGER, clock=clock)
        namespace = settings.namespace
        self._settings = settings
        self._transport = kube
        self._slots = slots
        self._clock = clock
        self._ids = ids
        self._sources = Sources(asking, namespace=namespace, clock=clock, random=random)
        self._foreign = ForeignOperator()
        self._events = Events(kube=asking, clock=clock, random=random, ids=ids)
        self._meters = DriverMeters(metrics, clock=clock)
        self._controllers = Meters(metrics, controllers=[NAME])
        self._lease = Lease(
            kube=asking,
            namespace=namespace,
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
        service.run_forever("events", self._events.run())
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
        kube = Kube(
            Fenced(self._transport, term, clock=self._clock), manager=MANAGER, clock=self._clock
        )
        namespace = self._settings.namespace
        return Work(
            kube=kube,
            namespace=namespace,
            sources=self._sources,
            survey=Survey(
                self._sources,
                foreign=self._foreign,
                slots=self._slots,
                settings=self._settings.of_operands(),
                clock=self._clock,
            ),
            hands=Hands(kube, sources=self._sources, namespace=namespace, meters=self._meters),
            telling=Telling(self._events),
            meters=self._meters,
            controllers=self._controllers,
            clock=self._clock,
            ids=self._ids,
        )
