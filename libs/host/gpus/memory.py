"""GPUs that are only thought of: for simulated machines, where there are too many for a library.

What they do is set by whoever owns the machine. They pass the same suite as real ones.
"""

from collections.abc import Callable, Mapping, Sequence

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample
from libs.host.gpus.port import DriverLibrary, GpusUnavailable


class MemoryGpus:
    """GPUs under a driver that comes and goes.

    `driver` says what is loaded at the moment, and `held` is told when somebody takes or leaves
    hold of the devices.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        *,
        driver: Callable[[], DriverLibrary | None],
        samples: Callable[[Gpu], GpuSample],
        held: Callable[[bool], None] = lambda _held: None,
    ) -> None:
        self._gpus = tuple(gpus)
        self._driver = driver
        self._samples = samples
        self._held = held
        self._under: DriverLibrary | None = None
        self._xids: dict[str, list[int]] = {}

    def open(self) -> DriverLibrary:
        """Take hold of the library; raises `Unavailable`. What is open already stays so."""
        library = self._driver()
        if library is None:
            raise GpusUnavailable("no NVIDIA driver is loaded")
        if self._under is None:
            self._held(True)
        self._under = library
        return library

    def close(self) -> None:
        """Let go of every device; without a hold it does nothing."""
        if self._under is not None:
            self._under = None
            self._held(False)

    @property
    def is_open(self) -> bool:
        """Whether somebody holds it."""
        return self._under is not None

    def describe(self) -> tuple[Gpu, ...]:
        """What each is, by index; one that hangs is said to. Raises `Unavailable` unless open."""
        self._asked()
        return self._gpus

    def sample(self) -> tuple[GpuSample, ...]:
        """What each does now, by index; what cannot be read is None. Raises `Unavailable`."""
        self._asked()
        return tuple(self._samples(gpu) for gpu in self._gpus)

    def errors(self) -> Mapping[str, tuple[int, ...]]:
        """XIDs that came since the last call, by UUID. Raises `Unavailable` unless open."""
        self._asked()
        said = {uuid: tuple(codes) for uuid, codes in self._xids.items()}
        self._xids = {}
        return said

    def fail(self, uuid: str, xid: int) -> None:
        """That GPU reports an error."""
        self._xids.setdefault(uuid, []).append(xid)

    def change(self, gpus: Sequence[Gpu]) -> None:
        """The machine has other GPUs, or one of them hangs."""
        self._gpus = tuple(gpus)

    def _asked(self) -> None:
        if self._under is None:
            raise GpusUnavailable("the GPUs are not open: nobody holds the driver's library")
        if self._driver() is None:
            raise GpusUnavailable("the driver was unloaded while its library was open")
