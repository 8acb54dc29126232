"""Compute on one GPU: `CUDA_VISIBLE_DEVICES=<uuid> python -m libs.host.cuda.child <libcuda> …`.

Behind the library are the folders that can have its parts. The process prints what came of it, as
one JSON object, and ends. It imports the standard library alone, so that it starts fast.
"""

import ctypes
import glob
import json
import os
import sys
import uuid
from array import array
from collections.abc import Sequence
from typing import Any, Final

from libs.host.cuda import kernel

HELPERS: Final = ("libnvidia-gpucomp.so.*", "libnvidia-nvvm*.so.*", "libnvidia-ptxjitcompiler.so.*")
"""What libcuda loads by name to compile the kernel. It finds what is loaded already; of two of one
name, the first."""


class CudaError(Exception):
    """A call failed."""

    def __init__(self, call: str, code: int, name: str = "") -> None:
        super().__init__(f"{call}: {name} {code}")
        self.call = call
        self.code = code
        self.name = name


class Driver:
    """The driver's library; each call raises `CudaError` if it fails."""

    def __init__(self, path: str, folders: Sequence[str] = ()) -> None:
        """`folders`: those with the library's parts, its own first."""
        for folder in folders:
            for pattern in HELPERS:
                for helper in sorted(glob.glob(os.path.join(folder, pattern))):
                    _load_helper(helper)
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise CudaError("dlopen", 0, str(error)) from None

    def call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise CudaError("dlopen", 0, f"{name} is missing") from None
        if code := function(*arguments):
            raise CudaError(name, code, self._error_name(code))

    def _error_name(self, code: int) -> str:
        name = ctypes.c_char_p()
        if self._library.cuGetErrorName(code, ctypes.byref(name)) or name.value is None:
            return ""
        return name.value.decode(errors="replace")


def _load_helper(path: str) -> None:
    try:
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    except OSError:
        return  # the kernel cannot be compiled then, and that call says so


def compute(driver: Driver) -> tuple[str, int]:
    """Run the kernel on the only visible GPU; return its UUID, and how many values are wrong."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    driver.call("cuInit", 0)
    driver.call("cuDeviceGet", ctypes.byref(device), 0)
    identity = (ctypes.c_ubyte * 16)()
    driver.call("cuDeviceGetUuid_v2", ctypes.byref(identity), device)
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        driver.call("cuCtxSetCurrent", context)
        wrong = _run_kernel(driver)
    finally:
        driver.call("cuDevicePrimaryCtxRelease_v2", device)
    return str(uuid.UUID(bytes=bytes(identity))), wrong


def _run_kernel(driver: Driver) -> int:
    module, function, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    driver.call("cuModuleLoadData", ctypes.byref(module), kernel.PTX.encode())
    driver.call("cuModuleGetFunction", ctypes.byref(function), module, kernel.NAME.encode())
    values = kernel.first_values(os.getpid())
    size = ctypes.c_size_t(values.itemsize * len(values))
    driver.call("cuMemAlloc_v2", ctypes.byref(memory), size)
    driver.call("cuMemcpyHtoD_v2", memory, values.tobytes(), size)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
    blocks = kernel.COUNT // kernel.THREADS
    driver.call(
        "cuLaunchKernel", function, blocks, 1, 1, kernel.THREADS, 1, 1, 0, None, arguments, None
    )
    driver.call("cuCtxSynchronize")
    found = ctypes.create_string_buffer(size.value)
    driver.call("cuMemcpyDtoH_v2", found, memory, size)
    driver.call("cuMemFree_v2", memory)
    return kernel.count_wrong(values, array("I", found.raw))


def main() -> None:
    # The library may print: the result gets a descriptor of its own, and prints go to the log.
    result = os.dup(1)
    os.dup2(2, 1)
    outcome: dict[str, object] = {"call": "", "code": 0, "name": "", "device": "", "wrong": 0}
    try:
        outcome["device"], outcome["wrong"] = compute(Driver(sys.argv[1], sys.argv[2:]))
    except CudaError as error:
        outcome |= {"call": error.call, "code": error.code, "name": error.name}
    os.write(result, json.dumps(outcome).encode())
    os._exit(0)  # what the library does at exit may hang, and adds nothing


if __name__ == "__main__":
    main()
