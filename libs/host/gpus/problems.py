"""From NVML's error codes to named problems. Pure."""

import errno
from typing import Final

from libs.contracts.gpus import GpuProblem

UNINITIALIZED: Final = 1
NO_PERMISSION: Final = 4
INSUFFICIENT_POWER: Final = 8
DRIVER_NOT_LOADED: Final = 9
LIBRARY_NOT_FOUND: Final = 12
GPU_IS_LOST: Final = 15
RESET_REQUIRED: Final = 16
LIB_RM_VERSION_MISMATCH: Final = 18

_CODES: Final = {
    NO_PERMISSION: GpuProblem.NO_PERMISSION,
    INSUFFICIENT_POWER: GpuProblem.INSUFFICIENT_POWER,
    DRIVER_NOT_LOADED: GpuProblem.DRIVER_NOT_LOADED,
    LIBRARY_NOT_FOUND: GpuProblem.NO_LIBRARY,
    GPU_IS_LOST: GpuProblem.LOST,
    RESET_REQUIRED: GpuProblem.RESET_REQUIRED,
    LIB_RM_VERSION_MISMATCH: GpuProblem.VERSION_MISMATCH,
}


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
