"""The scheduler from start to stop: what it follows, and what it does while it leads."""

import asyncio
import random as chance
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any, Final

from sluice.bus.asks import Responder
from sluice.bus.mirror import Mirror
from sluice.bus.port import Bus, BusError
from sluice.bus.pulse import Pulses
from sluice.bus.slots import Slots
from sluice.contracts import streams, subjects
from sluice.contracts.asks import PlanAnswer
from sluice.contracts.identities import Writer
from sluice.contracts.node import MANAGER
from sluice.kube.client import Kube
from sluice.kube.events import Events
from sluice.kube.lease import Lease
from sluice.kube.lease.fence import Fenced
from sluice.kube.lease.term import NotLeading, Term
from sluice.kube.transport import Transport
from sluice.rollout.views.fleet import Instant
from sluice.runtime.backoff import jittered
from sluice.runtime.clock import Clock
from sluice.runtime.ids import Ids
from sluice.runtime.logs import logger
from sluice.runtime.metrics import Metrics
from sluice.runtime.service import Service
from sluice.scheduler.acting import Acting
from sluice.scheduler.answering import Answering, Aside
from sluice.scheduler.evicting import Evicting
from sluice.scheduler.foreign import ForeignOperator
from sluice.scheduler.hands import Hands
from sluice.scheduler.memory import Memory
from sluice.scheduler.meters import SchedulerMeters
from sluice.scheduler.observing import Observing
from sluice.scheduler.reporting import Reporting
from sluice.scheduler.settings import SchedulerSettings
from sluice.scheduler.sight import Looking
from sluice.scheduler.slotbook import SlotBook
from sluice.scheduler.sources import Sources
from sluice.scheduler.telling import Telling
from sluice.scheduler.tenants import Tenants
from sluice.scheduler.work import Bell, Deposed, Work

LEASE: Final = "sluice-scheduler"
_ANSWERS: Final = 4
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
    role = await _Role.made(
        settings, kube, bus, clock=clock, ids=ids, random=random, metrics=metrics, service=service,
        aside=aside,
    )  # fmt: skip
    role.start(service)


class _Role:
    """What lives as long as the process, whoever leads."""

    def __init__(
        self,
        settings: SchedulerSettings,
        kube: Transport,
        bus: Bus,
        *,
        clock: Clock,
        ids: Ids,
        random: chance.Random,
        metrics: Metrics,
        aside: Aside,
    ) -> None:
        self._settings = settings
        self._transport = kube
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._random = random
        self._aside = aside
        self._bell = Bell(clock)
        asking = Kube(kube, manager=MANAGER, clock=clock)
        self._asking = asking
        self._sources = Sources(asking, namespace=settings.namespace, clock=clock, random=random)
        self._foreign = ForeignOperator()
        self._sources.leases.cache.on_change(
            lambda before, after: self._foreign.see(before, after, now=clock.monotonic())
        )
        self._events = Events(kube=asking, clock=clock, random=random, ids=ids)
        self._meters = SchedulerMeters(metrics)
        self._telling = Telling(bus=bus, clock=clock, random=random, dropped=self._meters.dropped)
        cluster = bus.identity.cluster
        self._mirror = Mirror(bus=bus, clock=clock, cluster=cluster)
        self._pulses = Pulses(bus=bus, clock=clock, cluster=cluster)
        self._touched: Callable[[str], None] = _nobody
        self._slot_book = SlotBook(bus=bus, changed=self._touch)
        self._tenants = Tenants(asking, clock=clock, random=random, changed=self._touch)
        self._looking = Looking(
            sources=self._sources,
            foreign=self._foreign,
            bus=bus,
            mirror=self._mirror,
            slots=self._slot_book,
            clock=clock,
        )
        self._lease = Lease(
            kube=asking,
            namespace=settings.namespace,
            name=LEASE,
            identity=settings.pod_name,
            clock=clock,
            random=random,
            ids=ids,
        )

    @classmethod
    async def made(
        cls,
        settings: SchedulerSettings,
        kube: Transport,
        bus: Bus,
        *,
        clock: Clock,
        ids: Ids,
        random: chance.Random,
        metrics: Metrics,
        service: Service,
        aside: Aside,
    ) -> "_Role":
        """With its streams there, and read from the start on."""
        for stream in streams.STREAMS:
            await bus.ensure(stream)
        role = cls(
            settings, kube, bus, clock=clock, ids=ids, random=random, metrics=metrics, aside=aside
        )
        await service.enter("beats", role._pulses)
        await service.enter("reports", role._mirror)
        await service.enter("slots", role._slot_book)
        return role

    def start(self, service: Service) -> None:
        """Everything that runs until the service stops."""
        for source in self._sources.all():
            service.run_forever(f"follow {source.name}", source.run())
        service.run_forever("events", self._events.run())
        service.run_forever("telling", self._telling.run())
        service.run_forever("pods", self._tenants.run())
        service.run_forever("lead", self._lead())
        service.ready_when("sources", lambda: self._sources.unknown() or None)
        unlisten = self._bus.link.watch(lambda _up: self._bell.ring())
        service.on_drain("link", _stopping(unlisten))

    def _touch(self, name: str) -> None:
        self._touched(name)

    async def _lead(self) -> None:
        await self._all_read()
        while True:
            try:
                async with self._lease.held() as term:
                    await self._term(term)
            except NotLeading as over:
                _log.warning("leads no more", why=str(over))
            except Deposed as over:
                _log.warning("deposed: stops at once", why=str(over))
                await self._clock.sleep(jittered(_AFTER, self._random))
            finally:
                self._meters.leads(False)

    async def _all_read(self) -> None:
        """Nobody leads before he knows what there is."""
        while self._sources.unknown() or not self._looking.hears:
            await self._clock.sleep(0.05)

    async def _term(self, term: Term) -> None:
        await self._sources.rollouts.prove()
        epoch = 1 + max((one.status.epoch for one in self._sources.rollouts), default=0)
        async with AsyncExitStack() as stack:
            work = await self._begun(term, epoch, stack)
            self._meters.leads(True)
            _log.info("leads", holder=self._lease.holder, epoch=epoch)
            await work.run()

    async def _begun(self, term: Term, epoch: int, stack: AsyncExitStack) -> Work:
        clock, random, settings = self._clock, self._random, self._settings
        fenced = Kube(Fenced(self._transport, term, clock=clock), manager=MANAGER, clock=clock)
        memory = Memory()
        observing = Observing(
            sources=self._sources,
            mirror=self._mirror,
            pulses=self._pulses,
            slots=self._slot_book,
            tenants=self._tenants,
            memory=memory,
            namespace=settings.namespace,
            clock=clock,
            wake=self._bell.ring,
        )
        stack.callback(observing.listen())
        self._touched = observing.touch
        stack.callback(setattr, self, "_touched", _nobody)
        reporting = Reporting(
            events=self._events,
            telling=self._telling,
            meters=self._meters,
            memory=memory,
            clock=clock,
            epoch=epoch,
        )
        reporting.leads(self._lease.holder)
        hands = Hands(fenced, sources=self._sources, meters=self._meters)
        evicting = Evicting(
            hands,
            memory=memory,
            clock=clock,
            random=random,
            changed=observing.touch,
            told=reporting.evicted,
        )
        acting = Acting(
            hands,
            observing=observing,
            slots=Slots(bus=self._bus, clock=clock),
            slot_book=self._slot_book,
            evicting=evicting,
            reporting=reporting,
            memory=memory,
            clock=clock,
            random=random,
            ids=self._ids,
            cluster=self._bus.identity.cluster,
            prove=self._sources.prove,
            forget=self._forget,
        )

        def instant() -> Instant:
            return self._looking.instant(epoch)

        work = Work(
            observing=observing,
            acting=acting,
            reporting=reporting,
            meters=self._meters,
            instant=instant,
            bell=self._bell,
            clock=clock,
            purge=acting.purge,
        )
        answering = Answering(
            observing=observing,
            waits=lambda: work.deciding.waits,
            history=reporting.history,
            instant=instant,
            holder=self._lease.holder,
            aside=self._aside,
        )
        await stack.enter_async_context(self._answered(answering))
        return work

    async def _forget(self, name: str) -> None:
        """A Node was deleted: nothing on the bus is of it."""
        cluster = self._bus.identity.cluster
        at = {"cluster": cluster, "node": name, "component": subjects.ANY}
        reports = subjects.State(**at, kind=subjects.ANY)
        answers = subjects.State(**at, kind=subjects.ANY, asker=subjects.ANY)
        await self._bus.purge(streams.STATE, str(reports))
        await self._bus.purge(streams.STATE, str(answers))
        await self._bus.purge(streams.COMMANDS, str(subjects.Command(**at)))
        self._mirror.forget(name)
        self._pulses.forget(name)
        self._slot_book.forget(name)

    @asynccontextmanager
    async def _answered(self, answering: Answering) -> AsyncGenerator[None]:
        """Who leads answers; while the bus is away nobody can ask."""
        responder = Responder(
            bus=self._bus,
            clock=self._clock,
            ids=self._ids,
            name=Writer.SCHEDULER.value,
            version=version("sluice-scheduler"),
            answers=answering.answers(),
            concurrent=_ANSWERS,
        )
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(responder)
            except BusError as error:
                _log.warning("questions are not answered in this term", why=str(error))
            yield


def _nobody(_name: str) -> None:
    """Nobody leads: nothing is to be looked at."""


def _stopping(end: Callable[[], None]) -> Callable[[], Coroutine[Any, Any, None]]:
    async def called() -> None:
        end()

    return called
