"""Driver's cluster role from start to stop: what it follows, and what it does while it leads."""

import random as chance

from libs.kube.client import Kube
from libs.kube.events import Events
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
from services.driver.cluster.hands import Hands
from services.driver.cluster.meters import DriverMeters
from services.driver.cluster.settings import DriverClusterSettings
from services.driver.cluster.sources import Sources
from services.driver.cluster.survey import Slots, Survey
from services.driver.cluster.telling import Telling
from services.driver.cluster.things import MANAGER
from services.driver.cluster.work import NAME, Work

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
