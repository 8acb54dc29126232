"""One run of the NVML process, whose answers a test writes."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from libs.contracts.gpus import GpuProblem
from libs.host.gpus.deadlines import LONGEST_LOOK, Deadlines
from libs.host.gpus.port import GpusUnavailable
from libs.host.gpus.process import MAX_EVENTS, Ended, NvmlProcess
from libs.host.gpus.protocol import Event, Opened
from libs.host.gpus.session import Session, Silent

ROOT = Path(__file__).parents[4]
SCRIPT = """
import os, sys
from libs.contracts.facts import Gpu
from libs.host.gpus.protocol import *

def send(*replies):
    data = b"".join(map(frame, replies))
    while data:
        data = data[os.write(1, data):]

def read():
    while True:
        (length,) = LENGTH.unpack(sys.stdin.buffer.read(4))
        question = requests.decode(sys.stdin.buffer.read(length))
        if not isinstance(question, Ping):
            return question
        send(Pong(question.id))

def gpu(index, complaints={}, **more):
    values = dict(uuid=f"GPU-{index}", index=index, minor=index, pci=f"0000:{index:02x}:00.0")
    gpu = Gpu(**(values | dict(name="H", memory_mib=1024) | more))
    return Description(gpu, complaints)

def answer(question, complaints={}, **more):
    if isinstance(question, Describe | DescribeAnew):
        send(Described(question.id, gpu(question.gpu, complaints, **more)))
    else:
        described = gpu(question.gpu, complaints, **more) if question.describes else None
        send(Sampled(question.id, 1.0, {"temperature_c": 40}, [], described))

"""
LONG = 60.0
"""Seconds; no test waits for so long."""

Start = Callable[..., Session]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that runs a script after the definitions above."""
    processes: list[NvmlProcess] = []

    def start(
        body: str,
        *,
        count: int = 2,
        first: float | None = None,
        seconds: float = LONG,
        late: float = LONG,
        hung: float | None = None,
        running: float = LONG,
    ) -> Session:
        """A GPU that misses its first deadline is hung at once, unless `hung` says otherwise."""
        process = NvmlProcess("", command=(sys.executable, "-c", SCRIPT + body))
        processes.append(process)
        opened = Opened(0, "580.95.05", "13.1", count)
        deadlines = Deadlines(
            first=seconds if first is None else first,
            answer=seconds,
            late=late,
            hung=min(seconds, LONGEST_LOOK) if hung is None else hung,
            running=running,
        )
        return Session(process, opened, deadlines)

    yield start
    for process in processes:
        process.kill()
        assert process.has_ended(within=LONG)
        process.close()


def test_sixty_four_gpus_are_described_and_more_are_complained_about(start: Start) -> None:
    with capture_logs() as logs:
        session = start("while True: answer(read())", count=1000)
        assert [gpu.index for gpu in session.describe()] == list(range(64))
        assert [sample.temperature_c for sample in session.sample()] == [40] * 64
    (complaint,) = logs
    assert (complaint["source"], complaint["name"]) == ("the driver", "number of GPUs")
    assert complaint["value"] == "1000"


@pytest.mark.parametrize("count", [-1, 0])
def test_a_driver_without_gpus_is_asked_nothing(start: Start, count: int) -> None:
    session = start("read()", count=count)
    assert (session.describe(), session.sample()) == ((), ())


def test_the_same_complaint_is_logged_once(start: Start) -> None:
    session = start("while True: answer(read(), {'minor': '-1', 'name': '?'})")
    with capture_logs() as logs:
        for _ in range(3):
            session.describe()
    assert [(entry["source"], entry["name"]) for entry in logs] == [
        ("GPU 0", "minor"),
        ("GPU 0", "name"),
        ("GPU 1", "minor"),
        ("GPU 1", "name"),
    ]


LATE = """
slow = []
for number in range(100):
    question = read()
    if number > 1 and question.gpu == 1 and not slow:
        slow.append(question)
        continue
    answer(question)
    if number == 5:
        answer(slow[0], uuid="GPU-of-an-old-answer")
"""


def test_a_late_answer_is_dropped_and_its_gpu_asked_again(start: Start) -> None:
    session = start(LATE, first=LONG, seconds=1.0)
    session.describe()
    problems = [session.describe()[1].problem]
    while problems[-1] is GpuProblem.HUNG:
        problems.append(session.describe()[1].problem)
    assert problems[-1] is None
    assert set(problems[:-1]) == {GpuProblem.HUNG}
    assert session.describe()[1].uuid == "GPU-1"


HANGS = """
for _ in range(4):
    answer(read())
while True:
    question = read()
    if question.gpu == 0:
        answer(question)
"""


def test_a_late_gpu_keeps_nobody_waiting_and_is_not_hung_before_its_deadline(start: Start) -> None:
    session = start(HANGS, late=0.01)
    before = session.describe()
    assert [sample.temperature_c for sample in session.sample()] == [40, 40]
    for _ in range(3):
        assert [sample.temperature_c for sample in session.sample()] == [40, None]
        assert session.describe() == before


def test_a_gpu_that_misses_its_deadline_is_hung(start: Start) -> None:
    session = start(HANGS, first=LONG, seconds=2.0, late=0.01)
    before = session.describe()
    assert [sample.temperature_c for sample in session.sample()] == [40, 40]
    while (found := session.describe())[1].problem is None:
        assert session.sample()[0].temperature_c == 40
        time.sleep(0.05)
    assert found[1] == replace(before[1], hung=True, problem=GpuProblem.HUNG)
    assert found[0] == before[0]


def test_a_gpu_that_is_late_for_longer_than_an_answer_may_take_is_not_hung(start: Start) -> None:
    session = start(HANGS, first=LONG, seconds=0.2, late=0.01, hung=1.0)
    before = session.describe()
    session.sample()
    began = time.monotonic()
    while (found := session.describe())[1].problem is None:
        assert found == before
    assert time.monotonic() - began > 0.6
    assert found[1].problem is GpuProblem.HUNG


STALLS = """
import time
for _ in range(2):
    answer(read())
question = read()
time.sleep(1.0)
answer(question)
while True:
    answer(read())
"""


def test_a_short_stall_of_the_whole_process_withdraws_nothing(start: Start) -> None:
    session = start(STALLS, first=LONG, seconds=0.2, hung=30.0, running=0.1)
    before = session.describe()
    assert session.describe() == before
    assert session.process.owing == {0, 1}
    while session.process.owing:
        assert session.describe() == before


ONE_CALL_HANGS = """
for _ in range(2):
    answer(read())
while (question := read()).gpu == 0:
    answer(question)
while True:
    answer(read())
"""


def test_a_gpu_that_answers_when_asked_a_second_time_is_not_hung(start: Start) -> None:
    session = start(ONE_CALL_HANGS, first=LONG, seconds=0.2, late=0.01, hung=3.0)
    before = session.describe()
    session.sample()
    while session.process.owing:
        assert session.describe() == before
    assert [sample.temperature_c for sample in session.sample()] == [40, 40]


def test_before_any_gpu_answered_a_process_that_does_not_run_is_no_fault_of_a_gpu(
    start: Start,
) -> None:
    session = start("import time; time.sleep(600)", seconds=0.2, running=0.1)
    with pytest.raises(GpusUnavailable, match="did not run") as raised:
        session.describe()
    assert raised.value.problem is None


COUNTS = """
for number in range(100):
    question = read()
    answer(question, serial=str(number))
"""


def test_a_sweep_asks_each_gpu_once(start: Start) -> None:
    session = start(COUNTS)
    session.describe()
    for sweep in (1, 2):
        described, samples = session.sweep()
        assert [gpu.serial for gpu in described] == [str(2 * sweep), str(2 * sweep + 1)]
        assert [sample.uuid for sample in samples] == ["GPU-0", "GPU-1"]
        assert [sample.temperature_c for sample in samples] == [40, 40]


ONE_HANGS_THEN_ALL = """
for _ in range(2):
    answer(read())
for _ in range(2):
    question = read()
    if question.gpu == 0:
        answer(question)
while True:
    read()
"""


def test_a_driver_that_hangs_for_all_is_found_in_the_sweep_in_which_one_still_answered(
    start: Start,
) -> None:
    session = start(ONE_HANGS_THEN_ALL, first=LONG, seconds=0.5, late=0.01)
    session.describe()
    with pytest.raises(Silent):
        session.sweep()


def test_a_gpu_that_says_the_same_is_described_the_same_and_a_change_is_seen(start: Start) -> None:
    session = start("answer(read()); answer(read(), name='X')\nwhile True: answer(read())", count=1)
    assert [session.describe()[0].name for _ in range(4)] == ["H", "X", "H", "H"]


def test_no_answer_at_all_is_silence(start: Start) -> None:
    session = start("while True: read()", seconds=0.2)
    with pytest.raises(Silent):
        session.describe()
    with pytest.raises(Silent):
        session.describe()


def test_answers_to_questions_that_nobody_asked_change_nothing(start: Start) -> None:
    session = start(
        "send(Described(999, gpu(0, uuid='GPU-x')), Failed(998, 15))\nwhile True: answer(read())"
    )
    assert [gpu.uuid for gpu in session.describe()] == ["GPU-0", "GPU-1"]


@pytest.mark.parametrize("code", [1, 9])
def test_a_gpu_without_a_driver_means_that_there_is_none(start: Start, code: int) -> None:
    session = start(f"answer(read()); send(Failed(read().id, {code}))")
    with pytest.raises(GpusUnavailable) as raised:
        session.describe()
    assert raised.value.problem is GpuProblem.DRIVER_NOT_LOADED


def test_a_defect_of_the_process_is_logged_and_concerns_one_gpu(start: Start) -> None:
    session = start("answer(read()); send(Failed(read().id, 0, 'TypeError: x'))")
    with capture_logs() as logs:
        first, second = session.describe()
    assert (first.problem, second.problem) == (None, GpuProblem.FAILED)
    assert [entry["value"] for entry in logs] == ["'TypeError: x'"]


def test_the_wrong_kind_of_answer_is_none(start: Start) -> None:
    session = start("answer(read()); send(Sampled(read().id, 1.0, {}))")
    assert [gpu.problem for gpu in session.describe()] == [None, GpuProblem.HUNG]


def test_events_come_with_any_answer_and_impossible_ones_are_dropped(start: Start) -> None:
    session = start(
        "send(Event(0, 79, 1.0), Event(1, 0, 2.0), Event(1, 1 << 63, 3.0))\n"
        "answer(read()); send(Event(-1, 48, 4.0)); answer(read())"
    )
    session.describe()
    assert session.take_events() == [Event(0, 79, 1.0), Event(-1, 48, 4.0)]
    assert session.take_events() == []


def test_a_flood_of_events_is_counted_and_hides_no_answer(start: Start) -> None:
    session = start(
        f"send(*[Event(0, 31, 1.0)] * {MAX_EVENTS + 5})\nanswer(read()); answer(read())"
    )
    assert len(session.describe()) == 2
    with capture_logs() as logs:
        assert len(session.take_events()) == MAX_EVENTS
    assert [entry["lost"] for entry in logs] == [5]


@pytest.mark.parametrize("body", ["", "os.write(1, b'nonsense')", "read(); sys.exit(3)"])
def test_the_end_of_the_process_ends_a_question(start: Start, body: str) -> None:
    session = start(body)
    with pytest.raises(Ended):
        session.describe()


def test_a_killed_process_may_be_closed_and_killed_again(start: Start) -> None:
    process = start("read()").process
    process.kill()
    assert process.has_ended(within=LONG)
    process.kill()
    with pytest.raises(Ended, match="killed"):
        process.take_late_answers()
