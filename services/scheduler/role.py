"""The scheduler from start to stop: it stands on its ground, and works while it leads."""

import asyncio
import random as chance
from collections.abc import Callable
from typing import Final

from libs.bus.port import Bus
from libs.contracts.asks import PlanAnswer
from libs.contracts.node import MANAGER
from libs.kube.client import Kube
from libs.kube.lease import Lease
from libs.kube.lease.fence import Fenced
from libs.kube.lease.term import NotLeading, Term
from libs.kube.transport import Transport
from libs.runtime.backoff import jittered
from libs.runtime.clock import Clock
from libs.runtime.ids import Ids
from libs.runtime.logs import logger
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from services.scheduler.answering import Aside
from services.scheduler.epochs import next_epoch
from services.scheduler.ground import Ground
from services.scheduler.settings import SchedulerSettings
from services.scheduler.terms import begun
from services.scheduler.work import Deposed

LEASE: Final = "sluice-scheduler"
_AFTER: Final = 5.0
"""Seconds until one that was deposed is a candidate again."""

_log = logger()


async def in_a_thread(work: Callable[[], PlanAnswer]) -> PlanAnswer:
    """A forecast takes seconds: the lease must be renewed meanwhile."""
    return await asyncio.to_thread(work)


async def run(
    settings: SchedulerSettings,
    *,
    kube: Transport,
    bus: Bus,
    clock: Clock,
    ids: Ids,
    random: chance.Random,
    metrics: Metrics,
    service: Service,
    aside: Aside = in_a_thread,
) -> None:
    """Start it."""
    asking = Kube(kube, manager=MANAGER, clock=clock)
    ground = Ground(
        asking,
        bus,
        namespace=settings.namespace,
        clock=clock,
        ids=ids,
        random=random,
        metrics=metrics,
    )
    lease = Lease(
        kube=asking,
        namespace=settings.namespace,
        name=LEASE,
        identity=settings.pod_name,
        clock=clock,
        random=random,
        ids=ids,
    )
    await ground.enter(service)
    ground.start(service)
    leading = _Leading(ground, lease, transport=kube, aside=aside)
    service.run_forever("lead", leading.run())


class _Leading:
    """A candidate for ever: from one term to the next."""

    def __init__(self, ground: Ground, lease: Lease, *, transport: Transport, aside: Aside) -> None:
        self._ground = ground
        self._lease = lease
        self._transport = transport
        self._aside = aside

    async def run(self) -> None:
        """Nobody leads before he knows what there is."""
        ground = self._ground
        await ground.read()
        while True:
            try:
                async with self._lease.held() as term:
                    await self._term(term)
            except NotLeading as over:
                _log.warning("leads no more", why=str(over))
            except Deposed as over:
                _log.warning("deposed: stops at once", why=str(over))
                await ground.clock.sleep(jittered(_AFTER, ground.random))
            finally:
                ground.meters.leads(False)

    async def _term(self, term: Term) -> None:
        ground, holder = self._ground, self._lease.holder
        rollouts, nodes = ground.sources.rollouts, ground.sources.nodes
        await rollouts.prove()
        epoch = next_epoch(rollouts, nodes, in_slots=ground.slot_book.epoch)
        fenced = Fenced(self._transport, term, clock=ground.clock)
        kube = Kube(fenced, manager=MANAGER, clock=ground.clock)
        term_of = begun(ground, kube=kube, epoch=epoch, holder=holder, aside=self._aside)
        async with term_of as work:
            ground.meters.leads(True)
            _log.info("leads", holder=holder, epoch=epoch)
            await work.run()
