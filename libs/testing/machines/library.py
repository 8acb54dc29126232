"""The driver's library on a simulated machine: as our agents have it open, and as it is proven."""

from collections.abc import Callable

from msgspec.structs import replace

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample
from libs.forecast.world import STEPS, Verdict
from libs.host import modules
from libs.host.gpus.memory import MemoryGpus
from libs.host.gpus.port import Library, Unavailable
from libs.testing.machines.seats import Seat
from libs.testing.machines.site import Site

_CUDA = {"535": "12.2", "550": "12.4", "560": "12.6", "570": "12.8", "575": "12.9", "580": "13.0"}
"""The newest that a branch supports."""


class SeatGpus(MemoryGpus):
    """For one agent, under whatever driver is in the kernel."""

    def __init__(self, site: Site, seat: Seat, *, samples: Callable[[Gpu], GpuSample]) -> None:
        super().__init__(site.gpus, driver=lambda: library(site), samples=samples, held=seat.hold)
        self.site = site
        self.seat = seat

    def describe(self) -> tuple[Gpu, ...]:
        """What each is, by index; one that hangs is said to. Raises `Unavailable` unless open."""
        broken = self.site.broken
        return tuple(replace(gpu, hung=gpu.index in broken) for gpu in super().describe())


class ProvingGpus(SeatGpus):
    """For the validator: its look takes as long as the world's validation does, and ends alike.

    Where that fails in the first step the library refuses; where it fails later, the first GPU
    hangs under the test. Nobody sees it who looks less closely.
    """

    _verdict: Verdict | None = None

    def open(self) -> Library:
        """Take hold of the library; raises `Unavailable`. What is open already stays so."""
        there = self.site.installed
        if self._verdict is not None or there is None:
            return super().open()
        attempt = self.site.attempt(f"validation {there.label}")
        verdict = self.site.model.validation(self.site.name, there.label, attempt)
        self.seat.takes(verdict.after)
        if verdict.failed == STEPS[0]:
            raise Unavailable("the driver's library and its kernel module do not go together")
        found = super().open()
        self._verdict = verdict
        return found

    def close(self) -> None:
        """Let go of every device; without a hold it does nothing."""
        self._verdict = None
        super().close()

    def describe(self) -> tuple[Gpu, ...]:
        """What each is, by index; one that hangs is said to. Raises `Unavailable` unless open."""
        found = super().describe()
        if self._verdict is None or not self._verdict.failed:
            return found
        return tuple(replace(gpu, hung=gpu.hung or gpu.index == 0) for gpu in found)


def library(site: Site) -> Library | None:
    """Of the driver that is in the kernel."""
    version = site.kernel.version(modules.DRIVER)
    if not version:
        return None
    return Library(driver_version=version, cuda=_CUDA.get(version.partition(".")[0], ""))
