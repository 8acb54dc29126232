"""One run of the NVML process: the GPUs that it knows, and what they answer."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from math import inf
from typing import Final

import msgspec

from libs.contracts.facts import Gpu
from libs.contracts.gpu_forms import Complaints
from libs.contracts.gpus import GpuProblem
from libs.contracts.telemetry import GpuSample
from libs.host.gpus import clean, problems, readings
from libs.host.gpus.complaints import ToldOnce
from libs.host.gpus.deadlines import Deadlines, Patience
from libs.host.gpus.division import DivisionRefused, GpuDivision, RefusalReason
from libs.host.gpus.port import DriverLibrary, GpusUnavailable
from libs.host.gpus.process import Ended, NvmlProcess
from libs.host.gpus.protocol import (
    MAX_GPUS,
    Changed,
    Describe,
    DescribeAnew,
    Described,
    Divide,
    Divided,
    Event,
    Failed,
    Linked,
    ListLinks,
    Opened,
    Reply,
    Request,
    Sample,
    Sampled,
)
from libs.runtime.logs import logger

MAX_XID: Final = 100_000

NOT_SCHEDULED: Final = (
    "the process that uses NVML did not run, because the machine's CPUs are busy: it is started"
    " again"
)

_log = logger()


class Silent(Exception):
    """No GPU answered."""


class Session:
    """The GPUs of one run; `process` has NVML open. Calls raise `Ended` if it has not any more."""

    def __init__(self, process: NvmlProcess, opened: Opened, deadlines: Deadlines) -> None:
        self.process = process
        self._deadlines = deadlines
        self._patience = Patience()
        self._asked_twice = set[int]()
        """The GPUs whose thread was replaced; each once in a run, so that threads stay few."""
        self._ids = count(opened.id + 1)
        self._known: dict[int, Gpu] = {}
        self._gpus: dict[int, Gpu] = {}
        """The GPUs by index as they were last described."""
        self._measured: dict[int, Sampled] = {}
        self._told = ToldOnce()
        self.library = DriverLibrary(driver_version=opened.driver_version, cuda=opened.cuda)
        complaints = Complaints()
        complaints.found |= opened.complaints
        complaints.integer("number of GPUs", opened.count, high=MAX_GPUS)
        self._count = max(0, min(opened.count, MAX_GPUS))
        self._told.log("the driver", complaints.found)

    def require_described(self) -> None:
        if not self._gpus:
            self.describe()

    def describe(self) -> tuple[Gpu, ...]:
        return self._describe(self._ask(Describe))

    def _describe(self, answers: Mapping[int, Reply]) -> tuple[Gpu, ...]:
        complaints = {index: Complaints() for index in range(self._count)}
        gpus = clean.distinct(
            [self._gpu(index, answers.get(index), complaints[index]) for index in complaints],
            self._known,
            complaints,
        )
        for index, each in complaints.items():
            self._told.log(f"GPU {index}", each.found)
        self._gpus = {gpu.index: gpu for gpu in gpus}
        self._known |= {gpu.index: gpu for gpu in gpus if gpu.problem is None}
        return gpus

    def links(self) -> dict[str, tuple[str, ...]]:
        """Return the ends of the links of each GPU that answers."""
        self.require_described()
        found: dict[str, tuple[str, ...]] = {}
        for index, reply in self._ask(ListLinks).items():
            gpu = self._gpus.get(index)
            if gpu is not None and gpu.uuid and isinstance(reply, Linked):
                found[gpu.uuid] = reply.ends
                self._told.log(f"GPU {index}", reply.complaints)
        return found

    def sample(self) -> tuple[GpuSample, ...]:
        """Measure all GPUs; the others are not kept waiting for one that does not answer."""
        self.require_described()
        answers = self._ask(Sample, late=self._deadlines.late)
        return tuple(self._sample(gpu, answers.get(index)) for index, gpu in self._gpus.items())

    def sweep(self) -> tuple[tuple[Gpu, ...], tuple[GpuSample, ...]]:
        """Describe and measure all GPUs with one question to each."""
        self.require_described()
        owing = self.process.owing
        answers = self._ask(partial(Sample, describes=True), late=self._deadlines.late)
        # Where a GPU is late, the others may have answered just before the driver hung for all.
        gpus = self._describe(answers) if self.process.owing <= owing else self.describe()
        return gpus, tuple(self._sample(gpu, answers.get(gpu.index)) for gpu in gpus)

    def _ask_one(self, uuid: str, question: Callable[[int, int], Request], seconds: float) -> Reply:
        """Ask one GPU, or change it. Raise `GpusUnavailable` or `DivisionRefused` if it fails."""
        gpu = self._usable(uuid)
        reply = self.process.ask([question(next(self._ids), gpu.index)], seconds=seconds).get(
            gpu.index
        )
        if reply is None:
            raise GpusUnavailable(GpuProblem.HUNG)
        if isinstance(reply, Failed):
            self._judge(gpu.index, reply)
            detail = reply.detail or f"NVML's error {reply.code}"
            reason = problems.refusal(reply.code)
            if reason is None:
                raise GpusUnavailable(problems.gpu_problem(reply.code), detail)
            raise DivisionRefused(reason, detail)
        return reply

    def _usable(self, uuid: str) -> Gpu:
        self.require_described()
        self.process.take_late_answers()
        gpu = next((each for each in self._gpus.values() if uuid and each.uuid == uuid), None)
        if gpu is None:
            unknown = (each.problem for each in self._gpus.values() if each.uuid == "")
            if uuid and (problem := next(unknown, None)) is not None:
                raise GpusUnavailable(problem)
            raise DivisionRefused(RefusalReason.UNKNOWN_GPU)
        if gpu.index in self.process.owing and not self._is_late(gpu.index):
            raise GpusUnavailable(GpuProblem.HUNG)
        if gpu.problem is not None and gpu.problem is not GpuProblem.HUNG:
            raise GpusUnavailable(gpu.problem)
        return gpu

    def division(self, uuid: str, seconds: float) -> GpuDivision:
        reply = self._ask_one(uuid, Divide, seconds)
        if not isinstance(reply, Divided):
            raise Ended("it gave the answer to another question")
        self._told.log(f"GPU {uuid}", reply.complaints)
        return msgspec.structs.replace(reply.division, uuid=uuid)

    def change(self, uuid: str, question: Callable[[int, int], Request], seconds: float) -> int:
        """Make a change; return the status of its activation."""
        reply = self._ask_one(uuid, question, seconds)
        if not isinstance(reply, Changed):
            raise Ended("it gave the answer to another question")
        return reply.status

    @property
    def known(self) -> Mapping[int, Gpu]:
        """The GPUs by index as they were last described without a problem."""
        return self._known

    def take_events(self) -> list[Event]:
        """Return the XIDs that NVML reported since the last call."""
        events, self.process.events = self.process.events, []
        if lost := self.process.lost_events:
            self.process.lost_events = 0
            _log.warning("XIDs were not kept, because too many arrived", lost=lost)
        return [event for event in events if self._is_possible(event)]

    def _is_possible(self, event: Event) -> bool:
        complaints = Complaints()
        xid = complaints.integer("xid", event.xid, low=1, high=MAX_XID)
        self._told.log(f"GPU {event.gpu}", complaints.found)
        return xid is not None

    def _ask(
        self, question: Callable[[int, int], Request], *, late: float = inf
    ) -> dict[int, Reply]:
        """Ask all GPUs that owe no answer; raise `Silent` if none answers, and none is late."""
        self.process.take_late_answers()
        gpus = sorted(set(range(self._count)) - self.process.owing)
        asked = [question(next(self._ids), gpu) for gpu in gpus]
        limit, are_known = self._deadlines, self._known.keys() >= set(gpus)
        seconds = limit.answer if are_known else limit.first
        began = time.monotonic()
        answers = self.process.ask(asked, seconds=seconds, late=late) if asked else {}
        runs = self._look(began, answers)
        owing = self.process.owing
        if owing and not answers and not any(map(self._is_late, owing)):
            if not runs and not self._known:
                raise GpusUnavailable(None, NOT_SCHEDULED)
            raise Silent
        for gpu, reply in answers.items():
            if isinstance(reply, Failed):
                self._judge(gpu, reply)
        return answers

    def _look(self, began: float, answers: Mapping[int, Reply]) -> bool:
        """Count for how long GPUs owe answers, and ask them again; return if the process runs."""
        owing, limit = self.process.owing, self._deadlines
        # Whoever answers for a GPU runs.
        runs = not owing or bool(answers)
        runs = runs or self.process.runs(next(self._ids), within=limit.running)
        owing = self.process.owing
        self._patience.look(owing, began=began, now=time.monotonic(), runs=runs)
        for gpu in owing - self._asked_twice:
            if self._patience.owed(gpu) >= limit.answer:
                self._asked_twice.add(gpu)
                self.process.send(DescribeAnew(next(self._ids), gpu))
        return runs

    def _is_late(self, gpu: int) -> bool:
        """Whether a GPU that owes an answer may still give it in time."""
        return gpu in self._known and self._patience.owed(gpu) < self._deadlines.hung

    def _judge(self, gpu: int, failed: Failed) -> None:
        """Raise `GpusUnavailable` if the driver is gone for all GPUs; log a defect."""
        if failed.code in (problems.UNINITIALIZED, problems.DRIVER_NOT_LOADED):
            raise GpusUnavailable(GpuProblem.DRIVER_NOT_LOADED)
        if not failed.code:
            self._told.log(f"GPU {gpu}", {"answer": repr(failed.detail)[:120]})

    def _gpu(self, index: int, reply: Reply | None, complaints: Complaints) -> Gpu:
        found = reply.description if isinstance(reply, Described | Sampled) else None
        if found is not None:
            self._told.log_unread(index, found.unread)
            complaints.found |= found.complaints
            return found.gpu
        if reply is None and self._is_late(index):
            return self._known[index]
        is_hung = not isinstance(reply, Failed)
        return msgspec.structs.replace(
            self._known.get(index) or _unknown_gpu(index),
            hung=is_hung,
            problem=GpuProblem.HUNG if is_hung else problems.gpu_problem(reply.code),
        )

    def _sample(self, gpu: Gpu, reply: Reply | None) -> GpuSample:
        if not isinstance(reply, Sampled) or gpu.problem is GpuProblem.UNIDENTIFIED:
            return GpuSample(uuid=gpu.uuid, index=gpu.index, pci=gpu.pci)
        complaints = Complaints()
        sample = readings.sample(gpu, reply, self._measured.get(gpu.index), complaints)
        self._measured[gpu.index] = reply
        self._told.log(f"GPU {gpu.index}", complaints.found)
        return sample


def _unknown_gpu(index: int) -> Gpu:
    return Gpu(uuid="", index=index, minor=-1, pci="", name="", memory_mib=0)
