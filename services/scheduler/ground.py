"""What the scheduler stands on as long as its process lives, whoever leads: caches, reports, slots.

Nothing is decided here, and nothing is written but what a deleted Node leaves on the bus.
"""

import random as chance
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from libs.bus.mirror import Mirror
from libs.bus.patience import Patience
from libs.bus.port import Bus
from libs.bus.pulse import Pulses
from libs.bus.telling import Telling
from libs.contracts import streams, subjects
from libs.kube.client import Kube
from libs.kube.events import Events
from libs.kube.foreign import ForeignOperator
from libs.runtime.clock import Clock
from libs.runtime.ids import Ids
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from services.scheduler.meters import SchedulerMeters
from services.scheduler.sight import Looking
from services.scheduler.slotbook import SlotBook
from services.scheduler.sources import Sources
from services.scheduler.tenants import Tenants
from services.scheduler.work import Bell


class Ground:
    """It follows everything from its start on; whoever leads finds it read."""

    def __init__(
        self,
        kube: Kube,
        bus: Bus,
        *,
        namespace: str,
        clock: Clock,
        ids: Ids,
        random: chance.Random,
        metrics: Metrics,
    ) -> None:
        self.bus = bus
        self.clock = clock
        self.ids = ids
        self.random = random
        self.namespace = namespace
        self.bell = Bell(clock)
        self.sources = Sources(kube, namespace=namespace, clock=clock, random=random)
        foreign = ForeignOperator()
        self.sources.leases.cache.on_change(
            lambda before, after: foreign.see(before, after, now=clock.monotonic())
        )
        self.events = Events(kube=kube, clock=clock, random=random, ids=ids)
        self.meters = SchedulerMeters(metrics)
        self.telling = Telling(bus=bus, clock=clock, random=random, dropped=self.meters.dropped)
        cluster = bus.identity.cluster
        self.mirror = Mirror(bus=bus, clock=clock, cluster=cluster)
        self.pulses = Pulses(bus=bus, clock=clock, cluster=cluster)
        self._touched: Callable[[str], None] = _nobody
        self.slot_book = SlotBook(bus=bus, changed=self._touch)
        self.tenants = Tenants(kube, clock=clock, random=random, changed=self._touch)
        self.looking = Looking(
            sources=self.sources,
            foreign=foreign,
            bus=bus,
            mirror=self.mirror,
            slots=self.slot_book,
            clock=clock,
        )

    async def enter(self, service: Service) -> None:
        """Have the streams there, and follow them from the start on."""
        patience = Patience(clock=self.clock, random=self.random)
        service.ready_when("bus", lambda: patience.why or None)
        for stream in streams.STREAMS:
            await patience.until_done(partial(self.bus.ensure, stream))
        await patience.until_done(lambda: service.enter("beats", self.pulses))
        await service.enter("reports", self.mirror)
        await service.enter("slots", self.slot_book)

    def start(self, service: Service) -> None:
        """Everything that runs until the service stops."""
        for source in self.sources.all():
            service.run_forever(f"follow {source.name}", source.run())
        service.run_forever("events", self.events.run())
        service.run_forever("telling", self.telling.run())
        service.run_forever("pods", self.tenants.run())
        service.ready_when("sources", lambda: self.sources.unknown() or None)
        unlisten = self.bus.link.watch(lambda _up: self.bell.ring())
        service.on_drain("link", _stopping(unlisten))

    async def read(self) -> None:
        """Return once it is known what there is."""
        while self.sources.unknown() or not self.looking.hears:
            await self.clock.sleep(0.05)

    def on_touch(self, touched: Callable[[str], None]) -> Callable[[], None]:
        """Tell whoever leads which node is another one, until the returned function is called."""
        self._touched = touched

        def end() -> None:
            self._touched = _nobody

        return end

    async def forget(self, name: str) -> None:
        """A Node was deleted: nothing on the bus is of it."""
        at = {"cluster": self.bus.identity.cluster, "node": name, "component": subjects.ANY}
        reports = subjects.State(**at, kind=subjects.ANY)
        answers = subjects.State(**at, kind=subjects.ANY, asker=subjects.ANY)
        await self.bus.purge(streams.STATE, str(reports))
        await self.bus.purge(streams.STATE, str(answers))
        await self.bus.purge(streams.COMMANDS, str(subjects.Command(**at)))
        self.mirror.forget(name)
        self.pulses.forget(name)
        self.slot_book.forget(name)

    def _touch(self, name: str) -> None:
        self._touched(name)


def _nobody(_name: str) -> None:
    """Nobody leads: nothing is to be looked at."""


def _stopping(end: Callable[[], None]) -> Callable[[], Coroutine[Any, Any, None]]:
    async def called() -> None:
        end()

    return called
