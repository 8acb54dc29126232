"""From NVML's error codes to named problems. Pure."""

import errno
from typing import Final

from libs.contracts.gpus import GpuProblem
from libs.host.gpus.division import Activation, RefusalReason

SUCCESS: Final = 0
UNINITIALIZED: Final = 1
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
INSUFFICIENT_POWER: Final = 8
DRIVER_NOT_LOADED: Final = 9
LIBRARY_NOT_FOUND: Final = 12
GPU_IS_LOST: Final = 15
RESET_REQUIRED: Final = 16
LIB_RM_VERSION_MISMATCH: Final = 18
IN_USE: Final = 19
INSUFFICIENT_RESOURCES: Final = 23

_CODES: Final = {
    NO_PERMISSION: GpuProblem.NO_PERMISSION,
    INSUFFICIENT_POWER: GpuProblem.INSUFFICIENT_POWER,
    DRIVER_NOT_LOADED: GpuProblem.DRIVER_NOT_LOADED,
    LIBRARY_NOT_FOUND: GpuProblem.NO_LIBRARY,
    GPU_IS_LOST: GpuProblem.LOST,
    RESET_REQUIRED: GpuProblem.RESET_REQUIRED,
    LIB_RM_VERSION_MISMATCH: GpuProblem.VERSION_MISMATCH,
}


OF_THE_GPU: Final = frozenset(
    (UNINITIALIZED, INSUFFICIENT_POWER, DRIVER_NOT_LOADED, GPU_IS_LOST, RESET_REQUIRED)
)
"""Errors that concern the GPU or the driver as a whole, whatever was asked."""
_REFUSALS: Final = {
    NOT_SUPPORTED: RefusalReason.NOT_CAPABLE,
    NO_PERMISSION: RefusalReason.NO_PERMISSION,
    IN_USE: RefusalReason.IN_USE,
    INSUFFICIENT_RESOURCES: RefusalReason.NO_ROOM,
}


def refusal(code: int) -> RefusalReason | None:
    """Return why the driver did not divide a GPU; None if something is wrong with the GPU."""
    return None if code in OF_THE_GPU else _REFUSALS.get(code, RefusalReason.REFUSED)


def activation(status: int) -> Activation:
    """Return what became of a change of the MIG mode, from what prevents it."""
    if status == SUCCESS:
        return Activation.DONE
    return Activation.IN_USE if status == IN_USE else Activation.RESET_REQUIRED


def gpu_problem(code: int) -> GpuProblem:
    """Return what is wrong with a GPU that answers with this code."""
    return _CODES.get(code, GpuProblem.FAILED)


def open_problem(code: int, *, is_loaded: bool, control_errno: int) -> GpuProblem:
    """Return why NVML cannot be initialized.

    Where the kernel has the driver but its device file cannot be opened, NVML says that no driver
    is loaded, or that the error is unknown.
    """
    if code in _CODES and code not in (NO_PERMISSION, DRIVER_NOT_LOADED):
        return _CODES[code]
    if is_loaded and control_errno in (errno.EACCES, errno.EPERM):
        return GpuProblem.NO_PERMISSION
    if is_loaded and control_errno in (errno.ENOENT, errno.ENXIO, errno.ENODEV):
        return GpuProblem.NO_DEVICE_FILES
    return gpu_problem(code)
