"""The interface to the GPUs of a machine."""

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from libs.contracts.facts import Gpu
from libs.contracts.gpus import REMEDIES, GpuProblem
from libs.contracts.telemetry import GpuSample
from libs.host.gpus.division import Activation, GpuDivision, InstanceProfile
from libs.host.kernel_log import SwitchError


class DriverLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """The driver, as its library names it."""

    driver_version: str
    cuda: str = ""
    """The newest CUDA that it supports, `13.1`."""


class GpusUnavailable(Exception):
    """There is no driver, or it does not answer. The text is the reason, for people.

    `problem` is None if nothing is wrong with the machine.
    """

    def __init__(self, problem: GpuProblem | None, detail: str = "") -> None:
        remedy = "" if problem is None else REMEDIES.get(problem, problem.value)
        super().__init__(f"{remedy} ({detail})" if remedy and detail else remedy or detail)
        self.problem = problem


class Gpus(Protocol):
    """All GPUs of a machine. Calls block, for a limited time; `close` ends those of other threads.

    All methods but those of errors raise `GpusUnavailable`; queries do so unless the library is
    open.
    """

    def open(self) -> DriverLibrary:
        """Open the library, or keep it open."""
        ...

    def close(self) -> None:
        """Close every device, if any is open.

        Raise `GpusUnavailable` (driver-hung) if the kernel still holds one open.
        """
        ...

    def describe(self) -> tuple[Gpu, ...]:
        """Return the GPUs by index; one that cannot be used has a problem."""
        ...

    def links(self) -> Mapping[str, tuple[str, ...]]:
        """Return the PCI address at the other end of each active NVLink, by UUID of the GPU.

        A GPU that does not answer is absent. Links change with the driver only.
        """
        ...

    def sample(self) -> tuple[GpuSample, ...]:
        """Return one measurement of each GPU, by index; unreadable values are None."""
        ...

    def sweep(self) -> tuple[tuple[Gpu, ...], tuple[GpuSample, ...]]:
        """Return what `describe` and `sample` return, for a fraction of their costs.

        The GPUs that answer are kept waiting no longer than by `sample`.
        """
        ...

    def follow_log(self, after: int | None) -> None:
        """Let errors of the kernel log begin after this record of this boot.

        `None`, and without this call: they begin with the driver's load, as far as the log goes.
        """
        ...

    @property
    def logged_until(self) -> int | None:
        """The last record of the kernel log of which `errors` returned what it says."""
        ...

    def errors(self) -> Mapping[str, tuple[int, ...]]:
        """Return the XIDs since the last call, by UUID, also once the library is not open any more.

        A GPU whose UUID is not known is named by its PCI slot, such as `0000:41:00`.
        """
        ...

    def switch_errors(self) -> tuple[SwitchError, ...]:
        """Return the errors of NVSwitches that `errors` found since the last call."""
        ...

    # Changes of MIG, by UUID of the GPU. Those that the driver refuses raise `DivisionRefused`.

    def division(self, uuid: str) -> GpuDivision:
        """Return how a GPU is divided, and could be; also `DivisionRefused` without MIG."""
        ...

    def set_mig_mode(self, uuid: str, *, on: bool) -> Activation:
        """Set the MIG mode, whether or not it takes effect now. The library is closed afterwards.

        A GPU has other device files and numbers after that.
        """
        ...

    def create_instance(
        self, uuid: str, profile: InstanceProfile, *, start: int, compute: Sequence[int]
    ) -> None:
        """Create a GPU instance at a slice of memory, with compute instances of these slices."""
        ...

    def destroy_instance(self, uuid: str, number: int) -> None:
        """Destroy the GPU instance with this id, and before it its compute instances."""
        ...


class GpuHandle:
    """One agent's access to the GPUs of its machine, for several threads. Calls block."""

    def __init__(self, gpus: Gpus) -> None:
        self.gpus = gpus
        self.is_quiesced = False
        self.unavailable_reason = ""
        """Why the GPUs cannot be queried now; empty if they can."""
        self.problem: GpuProblem | None = None
        self._lock = threading.Lock()

    def release(self) -> None:
        """Close the GPUs, and keep them closed until `resume`.

        Raise `GpusUnavailable` if the kernel still holds a device open.
        """
        self.is_quiesced = True
        self._close()
        # Another thread may have found before that it may open them.
        with self._lock:
            self.gpus.close()

    def resume(self) -> None:
        """Allow the GPUs to be opened again."""
        self.is_quiesced = False

    def acquire(self) -> DriverLibrary | None:
        """Open the library; return None and set `unavailable_reason` where that is impossible."""
        with self._lock:
            if self.is_quiesced:
                self.unavailable_reason = "the GPUs are released while the driver changes"
                self.problem = None
                self._close()  # not the first time, if the kernel held a device open then
                return None
            try:
                library = self.gpus.open()
            except GpusUnavailable as error:
                self.mark_lost(error)
                return None
            self.unavailable_reason, self.problem = "", None
            return library

    def mark_lost(self, error: GpusUnavailable) -> None:
        """Close the GPUs after a call failed, because the driver may be gone."""
        self.unavailable_reason, self.problem = str(error), error.problem
        self._close()

    def _close(self) -> None:
        try:
            self.gpus.close()
        except GpusUnavailable as error:
            self.unavailable_reason, self.problem = str(error), error.problem
