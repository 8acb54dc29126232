"""What the NVML process writes to its agent: answers, and each XID at once."""

import ctypes
import os
import threading
import time
from typing import Any, Final

from libs.host.gpus import reading
from libs.host.gpus.protocol import NO_GPU, Event, Reply, frame
from libs.host.gpus.reading import NvmlError, nvml

EVENT_WAIT: Final = 1.0
"""Seconds for which a wait for XIDs lasts."""
NO_INSTANCE: Final = 0xFFFFFFFF
"""Stands for the whole GPU."""
START_WAIT: Final = 5.0
"""Seconds that the wait for XIDs leaves to the GPUs for their registration."""


class Answers:
    """Writes replies to the agent, one at a time."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._lock = threading.Lock()

    def send(self, reply: Reply) -> None:
        data = memoryview(frame(reply))
        with self._lock:
            while data:
                data = data[os.write(self._file, data) :]


class Events:
    """Waits for XIDs, and sends each at once."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._set: Any = None
        self._gpus: dict[int | None, int] = {}
        self._prepared = threading.Semaphore(0)

    def open(self) -> None:
        self._set = reading.attempt(nvml.nvmlEventSetCreate)

    def register(self, index: int, gpu: Any) -> None:
        """Let a GPU report its XIDs; a GPU without events is not an error."""
        self._gpus[_address(gpu)] = index
        if self._set is not None:
            reading.attempt(
                nvml.nvmlDeviceRegisterEvents, gpu, nvml.nvmlEventTypeXidCriticalError, self._set
            )

    def count_prepared(self) -> None:
        """Tell that one more GPU has registered, or failed to."""
        self._prepared.release()

    def run(self, gpus: int) -> None:
        # A registration may have to wait for a wait, so the GPUs go first, but a hung one not long.
        end = time.monotonic() + START_WAIT
        for _ in range(gpus):
            self._prepared.acquire(timeout=max(0.0, end - time.monotonic()))
        while self._set is not None:
            started = time.monotonic()
            try:
                event = nvml.nvmlEventSetWait(self._set, int(EVENT_WAIT * 1000))
            except NvmlError:  # mostly that there was none
                time.sleep(max(0.0, EVENT_WAIT - (time.monotonic() - started)))
                continue
            gpu = self._gpus.get(_address(event.device), NO_GPU)
            if event.eventType & nvml.nvmlEventTypeXidCriticalError:
                instance = event.gpuInstanceId
                self._answers.send(
                    Event(
                        gpu,
                        event.eventData,
                        reading.monotonic(),
                        None if instance == NO_INSTANCE else instance,
                    )
                )


def _address(gpu: Any) -> int | None:
    return ctypes.cast(gpu, ctypes.c_void_p).value
