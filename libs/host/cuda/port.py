"""The interface to CUDA on a machine."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec


class CudaProblem(StrEnum):
    """Why CUDA does not compute on a GPU."""

    NO_LIBRARY = "no-library"
    NO_UVM_DEVICE = "no-uvm-device"
    NOT_READY = "not-ready"
    VERSION_MISMATCH = "version-mismatch"
    NOT_FOUND = "not-found"
    OTHER_DEVICE = "other-device"
    IN_USE = "in-use"
    NO_COMPILER = "no-compiler"
    WRONG_RESULT = "wrong-result"
    NO_ANSWER = "no-answer"
    DRIVER_HUNG = "driver-hung"
    ENDED = "ended"
    FAILED = "failed"


REMEDIES: Final[Mapping[CudaProblem, str]] = {
    CudaProblem.NO_LIBRARY: "libcuda.so.1 cannot be loaded: check that the driver is complete",
    CudaProblem.NO_UVM_DEVICE: (
        "/dev/nvidia-uvm is missing: load the module nvidia_uvm, and see the log of the driver"
        " container"
    ),
    CudaProblem.NOT_READY: (
        "the system is not ready for CUDA, which waits for the fabric manager on machines with"
        " NVSwitch: check that it runs, in the version of the driver"
    ),
    CudaProblem.VERSION_MISMATCH: (
        "libcuda is of another version than the driver in the kernel: remove the other driver that"
        " is installed on this machine"
    ),
    CudaProblem.NOT_FOUND: "CUDA does not list the GPU, although NVML does: see the kernel log",
    CudaProblem.OTHER_DEVICE: (
        "CUDA computed on another GPU than the one that was named: reboot the node"
    ),
    CudaProblem.IN_USE: "another process has the GPU, or its memory, for itself",
    CudaProblem.NO_COMPILER: (
        "libnvidia-ptxjitcompiler cannot be loaded or is older than libcuda: check that the driver"
        " is complete"
    ),
    CudaProblem.WRONG_RESULT: (
        "the GPU computes wrong results: take it out of service and replace it"
    ),
    CudaProblem.NO_ANSWER: (
        "the computation did not end in time: see the kernel log for Xid; drain the node, then"
        " reset the GPU"
    ),
    CudaProblem.DRIVER_HUNG: (
        "the driver hung, and a process that waits in it cannot be ended: the node must be rebooted"
    ),
    CudaProblem.ENDED: "the computing process ended before its result: see the kernel log",
    CudaProblem.FAILED: "the driver refused the computation: see the kernel log for Xid",
}
"""By problem: what is wrong and what to do, for people."""


class Computation(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a computation on one GPU or MIG instance."""

    uuid: str
    problem: CudaProblem | None = None
    """None if the result was right."""
    detail: str = ""
    """The call that failed, and its error."""

    def describe(self) -> str:
        """Return the problem and its remedy, for people; empty if there is none."""
        if self.problem is None:
            return ""
        detail = f" ({self.detail})" if self.detail else ""
        return f"{REMEDIES[self.problem]}{detail}"


class Cuda(Protocol):
    """CUDA on all GPUs of a machine. Calls block, for a limited time."""

    def compute(self, uuids: Sequence[str]) -> tuple[Computation, ...]:
        """Compute on each of these GPUs and MIG instances; no device is open afterwards."""
        ...

    def close(self) -> None:
        """End the computations that another thread waits for."""
        ...
