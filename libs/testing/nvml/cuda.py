"""What the stand-in for libcuda shares with Python: results, and the kernel that it knows."""

import json
from enum import IntEnum

from libs.host.cuda import kernel
from libs.testing.nvml.structures import c_header


class CudaResult(IntEnum):
    """What a call returns, or what `StandIn.fail` makes of it."""

    SUCCESS = 0
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    NOT_INITIALIZED = 3
    DEVICE_UNAVAILABLE = 46
    NO_DEVICE = 100
    INVALID_DEVICE = 101
    ECC_UNCORRECTABLE = 214
    INVALID_PTX = 218
    JIT_COMPILER_NOT_FOUND = 221
    NOT_FOUND = 500
    ILLEGAL_ADDRESS = 700
    LAUNCH_FAILED = 719
    SYSTEM_NOT_READY = 802
    SYSTEM_DRIVER_MISMATCH = 803
    UNKNOWN = 999
    WRONG = -2
    """The kernel seems to succeed, but one value is wrong."""
    HANG = -1
    """The call never returns."""


_CONSTANTS = {
    "KERNEL_TEXT": json.dumps(kernel.PTX),
    "KERNEL_NAME": json.dumps(kernel.NAME),
    "KERNEL_STEPS": f"{kernel.STEPS}u",
    "KERNEL_MULTIPLIER": f"{kernel.MULTIPLIER}u",
    "KERNEL_INCREMENT": f"{kernel.INCREMENT}u",
}


def header() -> str:
    """Return the C header of what the library shares with Python."""
    cases = "".join(
        f'    case {code.value}: return "CUDA_ERROR_{code.name}";\n'
        for code in CudaResult
        if code > 0
    )
    names = (
        "static inline const char *cuda_result_name(int code)\n{\n    switch (code) {\n"
        f"{cases}    default: return 0;\n    }}\n}}\n"
    )
    return c_header(enums=[CudaResult], constants=_CONSTANTS, structures={}) + names
