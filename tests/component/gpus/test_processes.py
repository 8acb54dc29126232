"""The NVML process: what it loads, how it ends, and what an agent still answers when it cannot."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from libs.contracts.gpus import GpuProblem
from libs.host.gpus.deadlines import Deadlines
from libs.host.gpus.port import GpusUnavailable
from tests.component.gpus.freezer import Freezer
from tests.component.gpus.machine import StandInMachine, with_machine
from tests.unit.host.gpus_suite import LONGEST_WAIT, errors_of, is_measured, wait_for

REAL_PROCESSES = True

LOADED = """
import json, sys
import {module}
outside = {{name.partition(".")[0] for name in sys.modules}} - sys.stdlib_module_names
print(json.dumps(sorted(outside - {{"libs", "__main__"}})))
print(json.dumps(sorted(name for name in sys.modules if name.startswith("libs."))))
"""


def loaded_by(module: str) -> tuple[list[str], list[str]]:
    """Return the packages that a module loads, and the modules of ours."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", LOADED.format(module=module)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        check=True,
    )
    outside, ours = map(msgspec.json.decode, done.stdout.splitlines())
    return outside, ours


def test_the_process_loads_pynvml_and_msgspec_alone() -> None:
    outside, ours = loaded_by("libs.host.gpus.child")
    # msgspec loads the last one where something else has installed it.
    assert set(outside) - {"typing_extensions"} == {"msgspec", "pynvml"}
    assert ours == [
        "libs.contracts",
        "libs.contracts.diagnoses",
        "libs.contracts.facts",
        "libs.contracts.gpu_forms",
        "libs.contracts.gpus",
        "libs.contracts.message",
        "libs.contracts.numbers",
        "libs.contracts.words",
        "libs.host",
        "libs.host.gpus",
        "libs.host.gpus.child",
        "libs.host.gpus.clean",
        "libs.host.gpus.dividing",
        "libs.host.gpus.division",
        "libs.host.gpus.events",
        "libs.host.gpus.measuring",
        "libs.host.gpus.mig",
        "libs.host.gpus.problems",
        "libs.host.gpus.protocol",
        "libs.host.gpus.reading",
    ]


def test_an_agent_does_not_load_pynvml() -> None:
    assert "pynvml" not in loaded_by("services.agent_role")[0]


def sample_often(bench: StandInMachine) -> None:
    """Sample until that fails."""
    for _ in range(1000):
        bench.gpus.sample()


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_close_ends_the_process(bench: StandInMachine) -> None:
    bench.gpus.open()
    (process,) = bench.processes
    assert is_alive(process.pid)
    bench.gpus.close()
    assert not is_alive(process.pid)


def test_a_hung_gpu_costs_the_others_one_deadline_and_loses_no_error(bench: StandInMachine) -> None:
    bench.gpus.open()
    uuids = [gpu.uuid for gpu in bench.gpus.describe()]
    hung = bench.stand_in.gpus[1]
    hung.hang()
    for _ in range(10):
        samples = bench.gpus.sample()
        assert [is_measured(sample) for sample in samples] == [index != 1 for index in range(8)]
    assert hung.health.hung_calls == 2, "it was asked once more, and no more than that"
    bench.stand_in.gpus[5].report_xid(13)
    assert errors_of(bench.gpus, count=1) == {uuids[5]: (13,)}
    assert len(bench.processes) == 1
    hung.release()
    assert wait_for(bench.gpus, problem=None)[1].uuid == uuids[1]


def test_a_gpu_that_hangs_from_the_start_is_not_identified_and_the_others_are(
    bench: StandInMachine,
) -> None:
    bench.stand_in.gpus[1].hang()
    bench.gpus.open()
    described = bench.gpus.describe()
    assert [bool(gpu.uuid) for gpu in described] == [index != 1 for index in range(8)]
    assert described[1].problem is GpuProblem.HUNG
    bench.stand_in.gpus[1].release()
    assert wait_for(bench.gpus, problem=None)[1].uuid == bench.stand_in.gpus[1].uuid


@with_machine(
    deadlines=Deadlines(first=20.0, answer=0.2, hung=10.0, late=0.05, running=0.1, kill=20.0)
)
def test_a_process_that_does_not_run_for_a_moment_withdraws_no_gpu(bench: StandInMachine) -> None:
    bench.gpus.open()
    before = bench.gpus.describe()
    (process,) = bench.processes
    os.kill(process.pid, signal.SIGSTOP)
    for _ in range(4):
        assert bench.gpus.describe() == before
        assert not any(map(is_measured, bench.gpus.sample()))
    os.kill(process.pid, signal.SIGCONT)
    while not all(map(is_measured, bench.gpus.sample())):
        assert bench.gpus.describe() == before
    assert bench.processes == [process]


@with_machine(profile="T4")
def test_a_process_that_answers_nothing_is_replaced(bench: StandInMachine) -> None:
    bench.gpus.open()
    before = bench.gpus.describe()
    bench.stand_in.gpus[0].hang()
    with pytest.raises(GpusUnavailable, match="did not answer in time") as raised:
        bench.gpus.sample()
    assert raised.value.problem is GpuProblem.NO_ANSWER
    assert not is_alive(bench.processes[0].pid)
    bench.stand_in.gpus[0].release()
    bench.gpus.open()
    assert bench.gpus.describe() == before
    assert len(bench.processes) == 2


@with_machine(profile="T4")
def test_a_process_that_answers_nothing_and_cannot_be_killed_is_named(
    bench: StandInMachine,
) -> None:
    bench.gpus.open()
    bench.stand_in.gpus[0].hang()
    bench.hold_back(stuck=True)
    with pytest.raises(GpusUnavailable, match="must be rebooted"):
        bench.gpus.describe()
    bench.hold_back(stuck=False)


def test_a_lock_of_the_whole_driver_makes_all_gpus_silent(bench: StandInMachine) -> None:
    bench.gpus.open()
    bench.gpus.describe()
    bench.stand_in.machine.one_lock = 1
    bench.stand_in.gpus[3].hang()
    with pytest.raises(GpusUnavailable) as raised:
        sample_often(bench)
    assert raised.value.problem is GpuProblem.NO_ANSWER
    assert not is_alive(bench.processes[0].pid)


@with_machine(deadlines=Deadlines(open=0.5, kill=20.0))
def test_a_library_that_does_not_open_in_time_is_given_up(bench: StandInMachine) -> None:
    bench.freeze_next()
    with pytest.raises(GpusUnavailable, match="did not answer in time"):
        bench.gpus.open()
    assert not is_alive(bench.processes[0].pid)


@with_machine(deadlines=Deadlines(answer=600.0, late=600.0, kill=20.0))
def test_close_ends_the_wait_of_another_thread(bench: StandInMachine) -> None:
    bench.gpus.open()
    bench.gpus.describe()
    bench.stand_in.gpus[1].hang()
    raised: list[GpusUnavailable] = []

    def sample() -> None:
        try:
            bench.gpus.sample()
        except GpusUnavailable as error:
            raised.append(error)

    thread = threading.Thread(target=sample)
    thread.start()
    while not bench.stand_in.gpus[1].health.hung_calls:
        time.sleep(0.005)
    bench.gpus.close()
    thread.join(LONGEST_WAIT)
    assert not thread.is_alive()
    assert len(raised) == 1
    assert not bench.held()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_process_that_dies_is_replaced_at_once_and_its_errors_stay(
    bench: StandInMachine, number: signal.Signals
) -> None:
    bench.gpus.open()
    before = bench.gpus.describe()
    bench.stand_in.gpus[2].report_xid(48)
    bench.settle()
    os.kill(bench.processes[0].pid, number)
    with capture_logs() as logs:
        while len(bench.processes) == 1:
            assert all(map(is_measured, bench.gpus.sample()))
    assert [f"signal {number:d}" in entry["reason"] for entry in logs] == [True]
    assert bench.gpus.describe() == before
    assert bench.gpus.errors() == {before[2].uuid: (48,)}


def test_a_process_that_dies_again_and_again_says_how(bench: StandInMachine) -> None:
    bench.gpus.open()
    bench.command = (sys.executable, "-c", "raise SystemExit(3)")
    os.kill(bench.processes[0].pid, signal.SIGKILL)
    with pytest.raises(GpusUnavailable, match="it ended with code 3") as raised:
        sample_often(bench)
    assert raised.value.problem is GpuProblem.NO_ANSWER
    assert len(bench.processes) == 3


def test_the_process_ends_with_its_agent_even_while_a_gpu_hangs(bench: StandInMachine) -> None:
    bench.gpus.open()
    bench.gpus.describe()
    bench.stand_in.gpus[0].hang()
    bench.gpus.sample()
    (process,) = bench.processes
    process.forget_agent()
    assert process.has_ended(within=LONGEST_WAIT)


@with_machine(deadlines=Deadlines(kill=1.0))
def test_a_process_that_cannot_be_killed_is_named_and_nothing_waits_for_it(
    bench: StandInMachine, freezer: Freezer
) -> None:
    bench.gpus.open()
    (process,) = bench.processes
    freezer.freeze(process.pid)
    for call in (bench.gpus.close, bench.gpus.close, bench.gpus.open, bench.gpus.describe):
        with pytest.raises(GpusUnavailable, match=f"must be rebooted.*process {process.pid}"):
            call()
    assert bench.held()
    freezer.thaw()
    assert process.has_ended(within=LONGEST_WAIT)
    bench.gpus.close()
    assert not bench.held()
    assert bench.gpus.open()


def test_a_process_that_cannot_start_is_an_answer(
    bench: StandInMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(GpusUnavailable, match=r"did not start.*No such file"):
        bench.gpus.open()


@pytest.mark.parametrize(
    "script",
    [
        "import os; os.write(1, b'no frame at all')",
        "import os; os.write(1, b'\\x00\\x00\\x00\\x02hi')",
        "import os; os.write(1, b'\\xff\\xff\\xff\\xff')",
        "",
    ],
)
def test_a_process_that_speaks_nonsense_is_ended(bench: StandInMachine, script: str) -> None:
    bench.command = (sys.executable, "-c", script)
    with pytest.raises(GpusUnavailable) as raised:
        bench.gpus.open()
    assert raised.value.problem is GpuProblem.NO_ANSWER
    assert not is_alive(bench.processes[0].pid)
