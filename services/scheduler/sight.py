"""With what sight a decision is made: the age of each source, and whether the bus is away."""

from libs.bus.mirror import Mirror
from libs.bus.port import Bus
from libs.kube.foreign import ForeignOperator
from libs.rollout.views.fleet import Instant, Sight
from libs.runtime.clock import Clock
from services.scheduler.slotbook import SlotBook
from services.scheduler.sources import Sources

_KEPT = 100


class Looking:
    """Remembers since when nothing could be heard, and when that was so before."""

    def __init__(
        self,
        *,
        sources: Sources,
        foreign: ForeignOperator,
        bus: Bus,
        mirror: Mirror,
        slots: SlotBook,
        clock: Clock,
    ) -> None:
        self._sources = sources
        self._foreign = foreign
        self._bus = bus
        self._mirror = mirror
        self._slots = slots
        self._clock = clock
        self._away_since: float | None = None
        self._away: tuple[tuple[float, float], ...] = ()

    def instant(self, epoch: int) -> Instant:
        """Now."""
        now = self._clock.now()
        self._look(now)
        sight = Sight(
            sources=self._sources.seen(),
            away_since=self._away_since,
            away=self._away,
            foreign_operator=self._foreign.at_work(now=self._clock.monotonic()),
        )
        return Instant(at=now, epoch=epoch, sight=sight)

    @property
    def hears(self) -> bool:
        """Whether reports and slots are those of now."""
        return self._bus.link.up and self._mirror.age == 0.0 and self._slots.current

    def _look(self, now: float) -> None:
        if self.hears:
            if self._away_since is not None:
                self._away = (*self._away[-_KEPT:], (self._away_since, now))
                self._away_since = None
        elif self._away_since is None:
            self._away_since = now
