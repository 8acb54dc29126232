"""A process that makes the telemetry agent's NVML calls in bare loops: a sweep once a second.

`python -m bench.telemetry_calls LIBRARY` prints `{"calls"}`, the number of calls per sweep; then,
for each line on stdin, `{"sweeps", "calls", "wait"}`: the number of sweeps so far, and the seconds
of CPU that they and the wait for events took. It ends with its stdin.
"""

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from libs.host.gpus import reading
from libs.host.gpus.measuring import Measuring
from libs.host.gpus.reading import NvmlError, nvml

INTERVAL: Final = 1.0


class Recorder:
    """Records the calls of pynvml's functions with their arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._is_within = False

    def watch(self) -> None:
        """Replace the functions of the module."""
        for name, function in list(vars(nvml).items()):
            if name.startswith("nvml") and callable(function) and not isinstance(function, type):
                setattr(nvml, name, self._watched(function))

    def _watched(self, function: Any) -> Any:
        def call(*args: Any) -> Any:
            if self._is_within:  # pynvml's functions call each other
                return function(*args)
            self.calls.append((function, args))
            self._is_within = True
            try:
                return function(*args)
            finally:
                self._is_within = False

        call.__wrapped__ = (  # pyright: ignore[reportFunctionMemberAccess]
            self._watched(function.__wrapped__) if hasattr(function, "__wrapped__") else None
        )
        return call


class BareLoop:
    """The calls of a sweep once a second, and the wait for events, in a thread each."""

    def __init__(self, calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
        self._calls = calls
        self._events = nvml.nvmlEventSetCreate()
        self.sweeps = 0
        self.cpu = {"calls": 0.0, "wait": 0.0}
        """Seconds of CPU."""

    def start(self, gpus: list[Any]) -> None:
        for gpu in gpus:
            nvml.nvmlDeviceRegisterEvents(gpu, nvml.nvmlEventTypeXidCriticalError, self._events)
        for run in (self._call, self._wait):
            threading.Thread(target=run, daemon=True).start()

    def _call(self) -> None:
        while True:
            began = time.monotonic()
            for function, args in self._calls:
                with suppress(NvmlError):
                    function(*args)
            self.sweeps += 1
            self.cpu["calls"] = time.thread_time()
            time.sleep(max(0.0, INTERVAL - (time.monotonic() - began)))

    def _wait(self) -> None:
        while True:
            with suppress(NvmlError):
                nvml.nvmlEventSetWait(self._events, int(INTERVAL * 1000))
            self.cpu["wait"] = time.thread_time()


def main(library: str) -> None:
    nvml.nvmlLib = ctypes.CDLL(library)
    nvml.nvmlInit()
    recorder = Recorder()
    recorder.watch()
    gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    measured = [(gpu, Measuring(gpu)) for gpu in gpus]
    for _ in range(2):  # the first sweep has no profiling
        recorder.calls.clear()
        for index, (gpu, measuring) in enumerate(measured):
            reading.Describing(index).read(gpu)
            measuring.sample()
            measuring.sample_instances()
    calls = list(recorder.calls)
    loop = BareLoop(calls)
    loop.start(gpus)
    print(json.dumps({"calls": len(calls)}), flush=True)
    while sys.stdin.readline():
        print(json.dumps({"sweeps": loop.sweeps, **loop.cpu}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
