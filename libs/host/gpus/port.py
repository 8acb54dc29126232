"""The interface to the GPUs of a machine."""

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
    """There is no driver, or it does not answer. The text is the reason, for people."""


class Gpus(Protocol):
    """All GPUs of a machine. Calls may block, for a limited time.

    All methods but `close` raise `GpusUnavailable`; queries do so unless the library is open.
    """

    def open(self) -> DriverLibrary:
        """Open the library, or keep it open."""
        ...

    def close(self) -> None:
        """Close every device, if any is open."""
        ...

    def describe(self) -> tuple[Gpu, ...]:
        """Return the GPUs by index; a GPU that hangs is marked as such."""
        ...

    def sample(self) -> tuple[GpuSample, ...]:
        """Return one measurement of each GPU, by index; unreadable values are None."""
        ...

    def errors(self) -> Mapping[str, tuple[int, ...]]:
        """Return the XIDs since the last call, by UUID."""
        ...


class GpuHandle:
    """One agent's access to the GPUs of its machine. Calls block."""

    def __init__(self, gpus: Gpus) -> None:
        self.gpus = gpus
        self.is_quiesced = False
        self.unavailable_reason = ""
        """Why the GPUs cannot be queried now; empty if they can."""

    def release(self) -> None:
        """Close the GPUs, and keep them closed until `resume`."""
        self.is_quiesced = True
        self.gpus.close()

    def resume(self) -> None:
        """Allow the GPUs to be opened again."""
        self.is_quiesced = False

    def acquire(self) -> DriverLibrary | None:
        """Open the library; return None and set `why` where that is impossible."""
        if self.is_quiesced:
            self.unavailable_reason = "the GPUs are released while the driver changes"
            return None
        try:
            library = self.gpus.open()
        except GpusUnavailable as error:
            self.mark_lost(error)
            return None
        self.unavailable_reason = ""
        return library

    def mark_lost(self, error: GpusUnavailable) -> None:
        """Close the GPUs after a call failed, because the driver may be gone."""
        self.unavailable_reason = str(error)
        self.gpus.close()


class UnsupportedGpus:
    """The GPUs of a real machine, which this release cannot query: every query is refused."""

    def open(self) -> DriverLibrary:
        _refuse()

    def close(self) -> None:
        pass

    def describe(self) -> tuple[Gpu, ...]:
        _refuse()

    def sample(self) -> tuple[GpuSample, ...]:
        _refuse()

    def errors(self) -> Mapping[str, tuple[int, ...]]:
        _refuse()


def _refuse() -> NoReturn:
    raise GpusUnavailable(
        "the GPUs of a real machine cannot be queried: this release does not read the driver's"
        " library, so nothing is measured or validated there; only simulated machines have GPUs"
    )
