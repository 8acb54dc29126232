"""What may be asked of GPUs."""

from collections.abc import Mapping
from typing import NoReturn, Protocol

import msgspec

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample


class DriverLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """The driver, as its library names it."""

    driver_version: str
    cuda: str = ""
    """The newest CUDA that it supports, `13.1`."""


class GpusUnavailable(Exception):
    """There is no driver to be asked, or it does not answer. The text says why, for a person."""


class Gpus(Protocol):
    """All GPUs of a machine. Calls may block; each has an end."""

    def open(self) -> DriverLibrary:
        """Take hold of the library; raises `Unavailable`. What is open already stays so."""
        ...

    def close(self) -> None:
        """Let go of every device; without a hold it does nothing."""
        ...

    def describe(self) -> tuple[Gpu, ...]:
        """What each is, by index; one that hangs is said to. Raises `Unavailable` unless open."""
        ...

    def sample(self) -> tuple[GpuSample, ...]:
        """What each does now, by index; what cannot be read is None. Raises `Unavailable`."""
        ...

    def errors(self) -> Mapping[str, tuple[int, ...]]:
        """XIDs that came since the last call, by UUID. Raises `Unavailable` unless open."""
        ...


class GpuHandle:
    """One agent's hold of the GPUs of its machine. Calls block."""

    def __init__(self, gpus: Gpus) -> None:
        self.gpus = gpus
        self.is_quiesced = False
        self.why = ""
        """Why the GPUs cannot be asked now; empty if they can."""

    def release(self) -> None:
        """Hold nothing from now on."""
        self.is_quiesced = True
        self.gpus.close()

    def resume(self) -> None:
        """It may be held again."""
        self.is_quiesced = False

    def acquire(self) -> DriverLibrary | None:
        """The library, held from now on; None, and `why` says so, where it cannot be."""
        if self.is_quiesced:
            self.why = "it was told to let go of the GPUs, while the driver changes"
            return None
        try:
            library = self.gpus.open()
        except GpusUnavailable as error:
            self.mark_lost(error)
            return None
        self.why = ""
        return library

    def mark_lost(self, error: GpusUnavailable) -> None:
        """An answer did not come: whoever is behind the library may be gone."""
        self.why = str(error)
        self.gpus.close()


class UnsupportedGpus:
    """A `Gpus` behind which there is nobody; every question raises `Unavailable`."""

    def open(self) -> DriverLibrary:
        """Never."""
        _refuse()

    def close(self) -> None:
        """Nothing is ever held."""

    def describe(self) -> tuple[Gpu, ...]:
        """Never."""
        _refuse()

    def sample(self) -> tuple[GpuSample, ...]:
        """Never."""
        _refuse()

    def errors(self) -> Mapping[str, tuple[int, ...]]:
        """Never."""
        _refuse()


def _refuse() -> NoReturn:
    raise GpusUnavailable(
        "the GPUs of a real machine cannot be asked: this release has no reader of the driver's"
        " library, so that nothing is measured or proven there; simulated machines have GPUs that"
        " answer"
    )
