"""With what sight a decision is made: the age of each source, and whether the bus is away."""

from libs.bus.port import Bus
from libs.bus.reports import ReportCache
from libs.bus.slot_cache import SlotCache
from libs.kube.gpu_operator import GpuOperatorDetector
from libs.rollout.views.fleet import Instant, Visibility
from libs.runtime.clock import Clock
from services.scheduler.informers import Informers

_KEPT = 100


class FreshnessTracker:
    """Remembers since when nothing could be heard, and when that was so before."""

    def __init__(
        self,
        *,
        informers: Informers,
        foreign: GpuOperatorDetector,
        bus: Bus,
        reports: ReportCache,
        slot_cache: SlotCache,
        clock: Clock,
    ) -> None:
        self._sources = informers
        self._foreign = foreign
        self._bus = bus
        self._mirror = reports
        self._slots = slot_cache
        self._clock = clock
        self._away_since: float | None = None
        self._away: tuple[tuple[float, float], ...] = ()

    def instant(self, epoch: int) -> Instant:
        """Now."""
        now = self._clock.now()
        self._look(now)
        sight = Visibility(
            sources=self._sources.source_states(),
            bus_down_since=self._away_since,
            bus_outages=self._away,
            foreign_operator=self._foreign.active_holders(now=self._clock.monotonic()),
        )
        return Instant(at=now, epoch=epoch, visibility=sight)

    @property
    def is_bus_current(self) -> bool:
        """Whether reports and slots are those of now."""
        return self._bus.link.is_up and self._mirror.age == 0.0 and self._slots.is_current

    def _look(self, now: float) -> None:
        if self.is_bus_current:
            if self._away_since is not None:
                self._away = (*self._away[-_KEPT:], (self._away_since, now))
                self._away_since = None
        elif self._away_since is None:
            self._away_since = now
