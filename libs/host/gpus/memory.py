"""GPUs of simulated machines, which return what their owner sets."""

from collections.abc import Callable, Mapping, Sequence

from libs.contracts.facts import Gpu
from libs.contracts.gpus import GpuProblem
from libs.contracts.telemetry import GpuSample
from libs.host.gpus.division import (
    Activation,
    DivisionRefused,
    GpuDivision,
    InstanceProfile,
    RefusalReason,
)
from libs.host.gpus.memory_mig import MemoryMig
from libs.host.gpus.port import DriverLibrary, GpusUnavailable
from libs.host.kernel_log import SwitchError


class MemoryGpus:
    """GPUs under a driver that comes and goes.

    `driver` returns the loaded driver; `held` is called when the devices are opened and closed.
    `mig` is how the GPUs are divided; without it, they are described as given.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        *,
        driver: Callable[[], DriverLibrary | None],
        samples: Callable[[Gpu], GpuSample],
        held: Callable[[bool], None] = lambda _held: None,
        mig: MemoryMig | None = None,
    ) -> None:
        self._gpus = tuple(gpus)
        self._driver = driver
        self._samples = samples
        self._held = held
        self._mig = mig
        self._is_open = False
        self.is_stuck = False
        """Whether the devices cannot be closed, because a call hangs in the driver."""
        self.link_ends: dict[str, tuple[str, ...]] = {}
        """What is at the other ends of NVLinks, by UUID."""
        self._xids: dict[str, list[int]] = {}
        self._switch_errors: list[SwitchError] = []
        self.logged_until: int | None = None

    def open(self) -> DriverLibrary:
        library = self._driver()
        if self.is_stuck:
            raise GpusUnavailable(GpuProblem.DRIVER_HUNG)
        if library is None:
            raise GpusUnavailable(GpuProblem.DRIVER_NOT_LOADED)
        if not self._is_open:
            self._held(True)
        self._is_open = True
        return library

    def close(self) -> None:
        if self._is_open:
            if self.is_stuck:
                raise GpusUnavailable(GpuProblem.DRIVER_HUNG)
            self._is_open = False
            self._held(False)

    @property
    def is_open(self) -> bool:
        return self._is_open

    def describe(self) -> tuple[Gpu, ...]:
        self._require_open()
        return self._gpus if self._mig is None else tuple(map(self._mig.describe, self._gpus))

    def links(self) -> Mapping[str, tuple[str, ...]]:
        self._require_open()
        return {gpu.uuid: self.link_ends.get(gpu.uuid, ()) for gpu in self._gpus if gpu.uuid}

    def sample(self) -> tuple[GpuSample, ...]:
        self._require_open()
        return tuple(
            self._samples(gpu)
            if gpu.problem is None
            else GpuSample(uuid=gpu.uuid, index=gpu.index, pci=gpu.pci)
            for gpu in self.describe()
        )

    def sweep(self) -> tuple[tuple[Gpu, ...], tuple[GpuSample, ...]]:
        return self.describe(), self.sample()

    def follow_log(self, after: int | None) -> None:
        self.logged_until = after

    def errors(self) -> Mapping[str, tuple[int, ...]]:
        errors = {uuid: tuple(codes) for uuid, codes in self._xids.items()}
        self._xids = {}
        return errors

    def switch_errors(self) -> tuple[SwitchError, ...]:
        errors, self._switch_errors = tuple(self._switch_errors), []
        return errors

    def division(self, uuid: str) -> GpuDivision:
        return self._mig_of(uuid).division(uuid)

    def set_mig_mode(self, uuid: str, *, on: bool) -> Activation:
        status = self._mig_of(uuid).set_mode(uuid, on=on)
        self.close()
        return status

    def create_instance(
        self, uuid: str, profile: InstanceProfile, *, start: int, compute: Sequence[int]
    ) -> None:
        self._mig_of(uuid).create(uuid, profile, start=start, compute=compute)

    def destroy_instance(self, uuid: str, number: int) -> None:
        self._mig_of(uuid).destroy(uuid, number)

    def _mig_of(self, uuid: str) -> MemoryMig:
        """Return how a GPU that works is divided."""
        gpu = next((each for each in self.describe() if uuid and each.uuid == uuid), None)
        if gpu is None:
            raise DivisionRefused(RefusalReason.UNKNOWN_GPU)
        if gpu.problem is not None:
            raise GpusUnavailable(gpu.problem)
        if self._mig is None:
            raise DivisionRefused(RefusalReason.NOT_CAPABLE)
        return self._mig

    def fail_switch(self, error: SwitchError) -> None:
        """Add an error to those that the next `switch_errors` returns."""
        self._switch_errors.append(error)

    def fail(self, uuid: str, xid: int) -> None:
        """Add an error to those that the next `errors` returns."""
        self._xids.setdefault(uuid, []).append(xid)

    def change(self, gpus: Sequence[Gpu]) -> None:
        """Replace the GPUs of the machine."""
        self._gpus = tuple(gpus)

    def _require_open(self) -> None:
        if self.is_stuck:
            raise GpusUnavailable(GpuProblem.DRIVER_HUNG)
        if not self._is_open:
            raise GpusUnavailable(None, "the GPUs are not open")
        if self._driver() is None:
            raise GpusUnavailable(
                GpuProblem.DRIVER_NOT_LOADED, "it was unloaded while its library was open"
            )
