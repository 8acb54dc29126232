"""The GPUs of a real machine, read through NVML in a process of its own (`child`).

The agent never waits for the driver: each question has a deadline. A GPU that misses it is hung
until it answers, while the others go on. When none answers, the process is killed, and the next
`open` starts another. A process that survives its kill waits in the driver: then nothing but a
reboot helps, and every call says so at once.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Final

import msgspec

from libs.contracts.facts import Gpu
from libs.contracts.gpus import GpuProblem
from libs.contracts.telemetry import GpuSample
from libs.host.gpus import clean, library, problems, readings
from libs.host.gpus.clean import Complaints
from libs.host.gpus.port import DriverLibrary, GpusUnavailable
from libs.host.gpus.process import Ended, NvmlProcess
from libs.host.gpus.protocol import (
    MAX_GPUS,
    Describe,
    Described,
    Failed,
    Open,
    Opened,
    Reply,
    Sample,
    Sampled,
)
from libs.host.tree import Tree
from libs.runtime.logs import logger

OPEN_SECONDS: Final = 60.0
"""The time for opening NVML: without persistence mode, that initializes one GPU after another."""
ANSWER_SECONDS: Final = 10.0
"""The time for the answers of all GPUs, which answer in parallel."""
KILL_SECONDS: Final = 2.0
"""The time until a killed process counts as stuck in the driver."""

_log = logger()


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds."""

    open: float = OPEN_SECONDS
    answer: float = ANSWER_SECONDS
    kill: float = KILL_SECONDS


class NvmlGpus:
    """The port `Gpus` of a real machine."""

    def __init__(
        self,
        tree: Tree,
        *,
        nvml_library: str = "",
        driver_root: str = library.DRIVER_ROOT,
        deadlines: Deadlines = Deadlines(),
        start: Callable[[str], NvmlProcess] = NvmlProcess,
    ) -> None:
        self._tree = tree
        self._setting = nvml_library
        self._driver_root = driver_root
        self._deadlines = deadlines
        self._start = start
        self._lock = threading.RLock()
        self._closings = 0
        self._process: NvmlProcess | None = None
        self._stuck: NvmlProcess | None = None
        self._library: DriverLibrary | None = None
        self._ids = count(1)
        self._indices: tuple[int, ...] = ()
        self._known: dict[int, Gpu] = {}
        self._before: dict[int, Sampled] = {}
        self._xids: dict[str, list[int]] = {}
        self._complained = set[tuple[str, str]]()

    def open(self) -> DriverLibrary:
        with self._lock:
            if self._process is not None and self._library is not None:
                return self._library
            self._require_no_stuck_process()
            is_loaded = library.is_driver_loaded(self._tree)
            if is_loaded is False:
                raise GpusUnavailable(GpuProblem.DRIVER_NOT_LOADED)
            return self._open(is_loaded=bool(is_loaded))

    def close(self) -> None:
        self._closings += 1
        try:
            if (process := self._process) is not None:
                process.kill()
            with self._lock:
                self._end()
                self._require_no_stuck_process()
        finally:
            self._closings -= 1

    def describe(self) -> tuple[Gpu, ...]:
        with self._lock:
            process = self._require_open()
            answers = self._ask_gpus(process, Describe)
            return self._describe(answers, process.hung)

    def sample(self) -> tuple[GpuSample, ...]:
        with self._lock:
            process = self._require_open()
            if len(self._known) < len(self._indices):
                self.describe()
            answers = self._ask_gpus(process, Sample)
            return tuple(self._sample(index, answers.get(index)) for index in self._indices)

    def errors(self) -> Mapping[str, tuple[int, ...]]:
        with self._lock:
            process = self._require_open()
            self._attempt(process.take_late_answers)
            self._take_events(process)
            errors = {uuid: tuple(codes) for uuid, codes in self._xids.items()}
            self._xids = {}
            return errors
