"""The NVML process of an agent: `python -m libs.host.gpus.child [library]`.

A call that hangs in the driver cannot be interrupted, and a device file is closed for certain only
by the end of its process: so NVML is used here, and never in the agent. One thread reads questions
and never waits for anything else. One thread per GPU, and one for calls that name none, answer
them; another waits for XIDs. A GPU whose thread waits for long gets another one once: a call that
hangs is not yet a GPU that hangs. The process ends with its standard input.

What NVML says of a GPU is cleaned here, so that the struct which leaves the process is the one that
the agent reports. The process must stay small, because each agent of a node has one: beside the
standard library it imports msgspec and pynvml alone.
"""

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, BinaryIO, Final

from libs.contracts.gpu_forms import Complaints
from libs.host.gpus import clean, dividing, reading
from libs.host.gpus.events import Answers, Events
from libs.host.gpus.measuring import Measuring
from libs.host.gpus.protocol import (
    LENGTH,
    MAX_FRAME,
    MAX_GPUS,
    Changed,
    CreateInstance,
    Describe,
    DescribeAnew,
    Described,
    DestroyInstance,
    Divide,
    Divided,
    Failed,
    GpuRequest,
    Linked,
    ListLinks,
    Open,
    Opened,
    Ping,
    Pong,
    Reply,
    Request,
    Sample,
    Sampled,
    SetMigMode,
    requests,
)
from libs.host.gpus.reading import NvmlError, nvml

STACK: Final = 1 << 20
"""Bytes of a thread's stack, of which only what is used takes memory."""
MAX_DETAIL: Final = 500
"""Characters of an error's text."""
CONTROL: Final = "/dev/nvidiactl"
"""The device file that the library opens first."""


class GpuThread:
    """Answers the questions about one GPU."""

    def __init__(
        self,
        index: int,
        *,
        answers: Answers,
        events: Events | None,
        describing: reading.Describing,
    ) -> None:
        """Without `events`, another thread has registered the GPU for its XIDs."""
        self.questions = SimpleQueue[GpuRequest]()
        self._index = index
        self._answers = answers
        self._events = events
        self._gpu: Any = None
        self._measuring: Measuring | None = None
        self.describing = describing

    def run(self) -> None:
        try:
            self._handle()
        except NvmlError:
            pass  # the answer to the first question says so
        finally:
            if self._events is not None:
                self._events.count_prepared()
        while True:
            question = self.questions.get()
            self._answers.send(_guarded(question.id, lambda asked=question: self._answer(asked)))

    def _answer(self, question: GpuRequest) -> Reply:
        gpu = self._handle()
        match question:
            case Describe(id) | DescribeAnew(id):
                return Described(id, self.describing.read(gpu))
            case Sample(id):
                return self._sample(id, gpu, describes=question.describes)
            case ListLinks(id):
                complaints = Complaints()
                return Linked(id, reading.link_ends(gpu, complaints), complaints.found)
            case Divide(id):
                complaints = Complaints()
                return Divided(id, dividing.read(gpu, complaints), complaints.found)
            case SetMigMode(id):
                return Changed(id, dividing.set_mode(gpu, on=question.on))
            case CreateInstance(id, _, profile, start, size, compute):
                dividing.create(gpu, profile=profile, start=start, size=size, compute=compute)
                return Changed(id)
            case DestroyInstance(id):
                dividing.destroy(gpu, question.instance)
                return Changed(id)

    def _sample(self, id: int, gpu: Any, *, describes: bool) -> Sampled:
        described = self.describing.read(gpu) if describes else None
        if self._measuring is None:
            self._measuring = Measuring(gpu)
        values, instances = self._measuring.sample(), self._measuring.sample_instances()
        return Sampled(id, reading.monotonic(), values, instances, described)

    def _handle(self) -> Any:
        if self._gpu is None:
            gpu = nvml.nvmlDeviceGetHandleByIndex(self._index)
            if self._events is not None:
                self._events.register(self._index, gpu)
            self._gpu = gpu
        return self._gpu


class Library:
    """Answers the questions that name no GPU: it opens NVML, and starts the threads of the GPUs."""

    def __init__(self, path: str, *, answers: Answers) -> None:
        self.questions = SimpleQueue[Open]()
        self.gpus: list[GpuThread] = []
        self._path = path
        self._answers = answers

    def run(self) -> None:
        while True:
            question = self.questions.get()
            self._answers.send(_guarded(question.id, lambda asked=question: self._open(asked)))

    def _open(self, question: Open) -> Reply:
        if self._path:
            try:
                nvml.nvmlLib = ctypes.CDLL(self._path)
            except OSError as error:
                detail = str(error)[:MAX_DETAIL]
                return Failed(question.id, nvml.NVML_ERROR_LIBRARY_NOT_FOUND, detail)
        try:
            nvml.nvmlInit()
        except NvmlError as error:
            return Failed(question.id, reading.code_of(error), control_errno=_control_errno())
        version = reading.undecoded(nvml.nvmlSystemGetDriverVersion)()
        # The second form of this call opens libcuda by its name, which no loader finds here: the
        # driver of a container is opened by its path.
        cuda = reading.attempt(nvml.nvmlSystemGetCudaDriverVersion) or 0
        count = nvml.nvmlDeviceGetCount()
        self._start_gpus(min(count, MAX_GPUS), with_events=question.events)
        complaints = Complaints()
        return Opened(
            question.id,
            clean.driver_version(version, complaints),
            clean.cuda_version(cuda, complaints),
            count,
            complaints.found,
        )

    def _start_gpus(self, count: int, *, with_events: bool) -> None:
        events = Events(self._answers)
        if with_events:
            events.open()
        for index in range(count):
            gpu = GpuThread(
                index,
                answers=self._answers,
                events=events,
                describing=reading.Describing(index),
            )
            self.gpus.append(gpu)
            _start(f"gpu {index}", gpu.run)
        _start("events", events.run, count)

    def replace(self, index: int) -> GpuThread:
        """Let another thread answer for a GPU; the earlier one ends its call and rests."""
        gpu = GpuThread(
            index,
            answers=self._answers,
            events=None,
            describing=self.gpus[index].describing,
        )
        self.gpus[index] = gpu
        _start(f"gpu {index} anew", gpu.run)
        return gpu


def _control_errno() -> int:
    """Return the error of opening the driver's first device file; 0 if there is none."""
    try:
        os.close(os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or 0
    return 0


def _guarded(id: int, answer: Callable[[], Reply]) -> Reply:
    """Return the answer, or why there is none: a defect must end no thread."""
    try:
        return answer()
    except NvmlError as error:
        return Failed(id, reading.code_of(error))
    except Exception as error:  # noqa: BLE001
        return Failed(id, 0, f"{type(error).__name__}: {error}"[:MAX_DETAIL])


def _start(name: str, run: Callable[..., object], *args: object) -> None:
    threading.Thread(target=run, args=args, name=name, daemon=True).start()


def _read_requests(source: BinaryIO, library: Library, answers: Answers) -> None:
    """Pass questions on until the input ends."""
    while head := source.read(LENGTH.size):
        (length,) = LENGTH.unpack(head)
        if length > MAX_FRAME:
            return
        question: Request = requests.decode(source.read(length))
        if isinstance(question, Open):
            library.questions.put(question)
        elif isinstance(question, Ping):
            answers.send(Pong(question.id))
        elif 0 <= question.gpu < len(library.gpus):
            is_anew = isinstance(question, DescribeAnew)
            gpu = library.replace(question.gpu) if is_anew else library.gpus[question.gpu]
            gpu.questions.put(question)
        else:
            return


def main() -> None:
    # The library may print: replies get a descriptor of their own, and its prints go to the log.
    answers = Answers(os.dup(1))
    os.dup2(2, 1)
    threading.stack_size(STACK)
    library = Library(sys.argv[1] if len(sys.argv) > 1 else "", answers=answers)
    _start("library", library.run)
    try:
        _read_requests(sys.stdin.buffer, library, answers)
    finally:
        os._exit(0)  # no thread is waited for, because it may hang


if __name__ == "__main__":
    main()
