"""One term of a leader, put together: who observes, decides, acts, reports and answers in it.

Wiring only: what is shared by all terms is the ground, and what happens in one its parts decide.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Final

from libs.bus.asks import Responder
from libs.bus.port import BusError
from libs.bus.slots import Slots
from libs.contracts.identities import Writer
from libs.kube.client import Kube
from libs.rollout.views.fleet import Instant
from libs.runtime.logs import logger
from services.scheduler.acting import Acting
from services.scheduler.answering import Answering, Aside
from services.scheduler.evicting import Evicting
from services.scheduler.ground import Ground
from services.scheduler.hands import Hands
from services.scheduler.memory import Memory
from services.scheduler.observing import Observing
from services.scheduler.reporting import Reporting
from services.scheduler.work import Work

_ANSWERS: Final = 4

_log = logger()


@asynccontextmanager
async def begun(
    ground: Ground, *, kube: Kube, epoch: int, holder: str, aside: Aside
) -> AsyncGenerator[Work]:
    """Its work, until the end of the block; `kube` lets out what this leader may write."""
    async with AsyncExitStack() as stack:
        memory = Memory()
        observing = _observing(ground, memory)
        stack.callback(observing.listen())
        stack.callback(ground.on_touch(observing.touch))
        stack.callback(ground.tenants.follow, ())
        reporting = Reporting(
            events=ground.events,
            telling=ground.telling,
            meters=ground.meters,
            memory=memory,
            clock=ground.clock,
            ids=ground.ids,
            epoch=epoch,
        )
        reporting.leads(holder)
        stack.callback(ground.sources.rollouts.cache.on_change(reporting.steered))
        acting = _acting(ground, memory, observing, reporting, kube=kube)

        def instant() -> Instant:
            return ground.looking.instant(epoch)

        work = Work(
            observing=observing,
            acting=acting,
            reporting=reporting,
            meters=ground.meters,
            instant=instant,
            in_slots=lambda: ground.slot_book.epoch,
            bell=ground.bell,
            clock=ground.clock,
        )
        answering = Answering(
            observing=observing,
            waits=lambda: work.deciding.waits,
            history=reporting.history,
            unwritten=memory.unwritten,
            instant=instant,
            holder=holder,
            aside=aside,
        )
        await stack.enter_async_context(_answered(ground, answering))
        yield work


def _observing(ground: Ground, memory: Memory) -> Observing:
    return Observing(
        sources=ground.sources,
        mirror=ground.mirror,
        pulses=ground.pulses,
        slots=ground.slot_book,
        tenants=ground.tenants,
        memory=memory,
        namespace=ground.namespace,
        clock=ground.clock,
        wake=ground.bell.ring,
    )


def _acting(
    ground: Ground, memory: Memory, observing: Observing, reporting: Reporting, *, kube: Kube
) -> Acting:
    clock, random = ground.clock, ground.random
    hands = Hands(kube, sources=ground.sources, meters=ground.meters)
    evicting = Evicting(
        hands,
        memory=memory,
        clock=clock,
        random=random,
        changed=observing.touch,
        told=reporting.evicted,
    )
    return Acting(
        hands,
        observing=observing,
        slots=Slots(bus=ground.bus, clock=clock),
        slot_book=ground.slot_book,
        evicting=evicting,
        reporting=reporting,
        memory=memory,
        clock=clock,
        random=random,
        ids=ground.ids,
        cluster=ground.bus.identity.cluster,
        prove=ground.sources.prove,
        forget=ground.forget,
    )


@asynccontextmanager
async def _answered(ground: Ground, answering: Answering) -> AsyncGenerator[None]:
    """Who leads answers; while the bus is away nobody can ask."""
    responder = Responder(
        bus=ground.bus,
        clock=ground.clock,
        ids=ground.ids,
        name=Writer.SCHEDULER.value,
        version=version("sluice"),
        answers=answering.answers(),
        concurrent=_ANSWERS,
    )
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(responder)
        except BusError as error:
            _log.warning("questions are not answered in this term", why=str(error))
        yield
