"""A process that calls real pynvml for a test: requests on its standard input, answers on output.

A handle crosses as its type and number, a structure as a dict of its fields.
"""

import ctypes
import importlib
import os
import pickle
import sys
from dataclasses import dataclass
from typing import Any

pynvml: Any = importlib.import_module("pynvml")


@dataclass(frozen=True)
class Handle:
    kind: str
    number: int


@dataclass(frozen=True)
class Failure:
    code: int


@dataclass(frozen=True)
class Struct:
    """An argument: a structure of pynvml that the call fills, with some fields set before."""

    kind: str
    fields: dict[str, Any]


def use(state_file: str) -> None:
    os.environ["STAND_IN_NVML"] = state_file


def open_files() -> list[str]:
    """Return what this process has open."""
    folder = "/proc/self/fd"
    files: list[str] = []
    for number in os.listdir(folder):
        try:
            files.append(os.readlink(f"{folder}/{number}"))
        except OSError:
            continue
    return sorted(files)


def filled(function: str, handle: Any, structure: Any) -> Any:
    """Call a function that fills a structure, and return the structure."""
    getattr(pynvml, function)(handle, ctypes.byref(structure))
    return structure


def raw(function: str, handle: Any, structure: Any) -> None:
    """Call a function of the library itself, for what pynvml would set right before the call."""
    result = getattr(pynvml.nvmlLib, function)(handle, ctypes.byref(structure))
    if result:
        raise pynvml.NVMLError(result)


def create_at(handle: Any, profile: int, start: int, size: int) -> Any:
    placement = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile, ctypes.byref(placement))


def create_all(handle: Any, profile: int) -> int:
    """Create GPU instances until one is refused, and return how many there were."""
    for count in range(99):
        try:
            pynvml.nvmlDeviceCreateGpuInstance(handle, profile)
        except pynvml.NVMLError:
            return count
    return 99


def measure(first: Any, second: Any, metrics: list[int], version: int = 1) -> list[Any]:
    """Return the result and value of each metric between two samples."""
    request = pynvml.c_nvmlGpmMetricsGet_t(version, len(metrics), first, second)
    for wanted, metric in zip(request.metrics, metrics, strict=False):
        wanted.metricId = metric
    pynvml.nvmlGpmMetricsGet(request)
    return [(item.nvmlReturn, item.value) for item in request.metrics[: len(metrics)]]


OWN = {
    function.__name__: function
    for function in (
        use,
        open_files,
        filled,
        raw,
        create_at,
        create_all,
        measure,
    )
}


def received(argument: Any) -> Any:
    """Return what pynvml takes for an argument of the test."""
    match argument:
        case Handle(kind, number):
            return ctypes.cast(number, getattr(pynvml, kind))
        case Struct(kind, fields):
            structure = getattr(pynvml, kind)()
            for name, value in fields.items():
                setattr(structure, name, value)
            return structure
        case _:
            return argument


def sent(result: Any) -> Any:
    """Return what crosses to the test for a result of pynvml."""
    if isinstance(result, ctypes.Structure | ctypes.Union):
        return {name: sent(getattr(result, name)) for name, *_ in result._fields_}
    if isinstance(result, ctypes.Array | list | tuple):
        return [sent(item) for item in result]
    if isinstance(result, ctypes.c_uint):
        return result.value
    for kind, pointer in HANDLES.items():
        if isinstance(result, pointer):
            return Handle(kind, ctypes.cast(result, ctypes.c_void_p).value or 0)
    return result


HANDLES: dict[str, Any] = {
    name: getattr(pynvml, name)
    for name in (
        "c_nvmlDevice_t",
        "c_nvmlGpuInstance_t",
        "c_nvmlComputeInstance_t",
        "c_nvmlEventSet_t",
        "c_nvmlGpmSample_t",
    )
}


def answer(name: str, arguments: tuple[Any, ...]) -> Any:
    function = OWN.get(name) or getattr(pynvml, name)
    try:
        return sent(function(*(received(argument) for argument in arguments)))
    except pynvml.NVMLError as error:
        return Failure(error.value)


def main() -> None:
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(answer(name, arguments), sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
