"""How tests are run: workers are forked, grounds end, a worker's death is told as its test's."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
PREAMBLE = """
import os, signal, time
import pytest
from tests import grounds
from tests.run.plan import GroundKind
"""


def run(folder: Path, tests: str, *options: str, conftest: str = "") -> tuple[int, str]:
    """Run tests in a folder of their own; return exit status and output."""
    process = start(folder, tests, *options, conftest=conftest)
    output, _ = process.communicate()
    return process.returncode, output


def start(folder: Path, tests: str, *options: str, conftest: str = "") -> "subprocess.Popen[str]":
    (folder / "test_it.py").write_text(PREAMBLE + tests)
    (folder / "conftest.py").write_text(conftest)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  dear(reason)\n  soak(reason)\n")
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "tests.run.plugin", "-p", "no:cacheprovider",
         "--workers", "2", *options, "test_it.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


def test_outcomes_are_counted_and_failures_told_with_the_command_to_repeat_them(
    tmp_path: Path,
) -> None:
    code, output = run(
        tmp_path,
        """
def test_good(): pass
def test_bad(): assert 1 == 2, "one is not two"
def test_left_out(): pytest.skip("no machine")
""",
    )
    assert code == 1
    assert "1 failed, 1 passed, 1 skipped" in output
    assert "FAILED test_it.py::test_bad: AssertionError: one is not two" in output
    assert "only this: make test ARGS='test_it.py::test_bad'" in output


def test_a_worker_that_dies_is_told_as_its_test_and_the_others_run(tmp_path: Path) -> None:
    code, output = run(
        tmp_path,
        """
def test_before(): pass
def test_deadly(): os.kill(os.getpid(), signal.SIGKILL)
def test_after(): pass
""",
    )
    assert code == 1
    assert "1 failed, 2 passed" in output
    assert "FAILED test_it.py::test_deadly: its process ended with signal 9 (SIGKILL)" in output


def test_a_test_without_progress_is_ended_and_nothing_is_raised_in_it(tmp_path: Path) -> None:
    code, output = run(
        tmp_path,
        """
from tests.run import forked, progress
import subprocess

def test_hangs():
    child = subprocess.Popen(["sleep", "3600"])
    open("child", "w").write(str(child.pid))
    try:
        child.wait()
    except BaseException:
        open("raised", "w").close()
        raise

def test_after(): pass
""",
        conftest="from tests.run import forked\nforked.SECONDS_AT_ONE_PLACE = 3.0\n",
    )
    assert code == 1
    assert "1 failed, 1 passed" in output
    assert "FAILED test_it.py::test_hangs: no progress for 3 s, last seen doing:" in output
    assert "in test_hangs" in output
    assert not (tmp_path / "raised").exists()
    child = (tmp_path / "child").read_text()
    assert not _runs(int(child)), "what the test had started is ended as well"


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # without a process 1 that collects, a killed one stays


def test_a_ground_ends_when_its_last_test_is_over(tmp_path: Path) -> None:
    code, output = run(
        tmp_path,
        """
@pytest.fixture(scope="session")
def machine():
    open("log", "a").write("start ")
    yield
    open("log", "a").write("end ")

@GroundKind.GUEST.marker()
def test_first(machine): open("log", "a").write("first ")

@GroundKind.GUEST.marker()
def test_last(machine): open("log", "a").write("last ")

@pytest.mark.parametrize("n", range(20))
def test_simulated(n): time.sleep(0.01)
""",
    )
    assert code == 0, output
    assert (tmp_path / "log").read_text() == "start first last end "
    assert "guest: over after" in output
    assert "guest                               2      2" in output


def test_a_dead_ground_is_told_once(tmp_path: Path) -> None:
    code, output = run(
        tmp_path,
        """
died = []

@pytest.fixture(scope="session")
def machine(request):
    problem = lambda: "exit code -9; its last line: kernel panic" if died else None
    with grounds.standing(request, problem):
        yield

@GroundKind.GUEST.marker()
def test_good(machine): pass

@GroundKind.GUEST.marker()
def test_deadly(machine):
    died.append(1)
    assert False, "no answer"

@GroundKind.GUEST.marker()
@pytest.mark.parametrize("n", range(30))
def test_after(machine, n): assert False, "its port is closed"
""",
        conftest="from tests.conftest import pytest_runtest_makereport, pytest_runtest_setup\n",
    )
    assert code == 1
    assert "1 failed, 1 passed, 30 skipped" in output
    assert "machine: exit code -9; its last line: kernel panic" in output
    assert "not run: its ground, `machine`, was dead after test_it.py::test_deadly" in output


def test_a_ground_that_does_not_start_is_told_once(tmp_path: Path) -> None:
    code, output = run(
        tmp_path,
        """
@pytest.fixture(scope="session")
def machine(request):
    with grounds.starting(request):
        raise OSError("no memory for it")
    yield

@GroundKind.GUEST.marker()
@pytest.mark.parametrize("n", range(30))
def test_each(machine, n): pass
""",
        conftest="from tests.conftest import pytest_runtest_makereport, pytest_runtest_setup\n",
    )
    assert code == 1
    assert "29 skipped, 1 error" in output


def test_a_failure_at_the_end_of_a_ground_is_told(tmp_path: Path) -> None:
    code, output = run(
        tmp_path,
        """
@pytest.fixture(scope="session")
def machine():
    yield
    raise OSError("a process is left")

@GroundKind.GUEST.marker()
def test_one(machine): pass
""",
    )
    assert code == 1
    assert "a process is left" in output


def test_ctrl_c_ends_what_tests_have_started(tmp_path: Path) -> None:
    process = start(
        tmp_path,
        """
@pytest.fixture
def machine():
    yield
    open("ended", "w").close()

def test_long(machine):
    open("started", "w").close()
    time.sleep(3600)

def test_other(): pass
""",
    )
    while not (tmp_path / "started").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 2
    assert "KeyboardInterrupt" in output
    assert (tmp_path / "ended").exists()


def test_a_test_fails_that_leaves_something_open_and_no_other_does(tmp_path: Path) -> None:
    code, output = run(
        tmp_path,
        """
import socket

class Holder: pass

def test_before(): pass

def test_leaves():
    holder = Holder()
    holder.itself, holder.socket = holder, socket.socket()

def test_raises_when_collected():
    class Holder:
        def __del__(self): raise ValueError("never closed")
    holder = Holder()
    holder.itself = holder

def test_after(): pass
""",
        "-W",
        "error",
    )
    assert code == 1
    assert "4 passed, 2 errors" in output
    assert output.count("FAILED test_it.py::test_leaves: left behind: unclosed <socket.") == 1
    assert "FAILED test_it.py::test_raises_when_collected: left behind: " in output
    assert "ValueError('never closed')" in output
    assert "only this: make test ARGS='test_it.py::test_leaves'" in output


def test_a_test_fails_whose_process_outlives_its_file(tmp_path: Path) -> None:
    code, output = run(
        tmp_path,
        """
import subprocess
left = []

@pytest.fixture(scope="module")
def server():
    with subprocess.Popen(["sleep", "3600"]) as process:
        yield
        process.kill()

def test_shares(server): pass
def test_leaves(server): left.append(subprocess.Popen(["sleep", "3601"]))
def test_after(server): pass

def teardown_module():
    open("left", "w").write(str(left[0].pid))
""",
    )
    os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)
    assert code == 1
    assert "3 passed, 1 error" in output
    assert "FAILED test_it.py::test_leaves: left behind: process " in output
    assert ", sleep 3601" in output


def test_workers_that_end_before_the_plan_does_fail_the_run(tmp_path: Path) -> None:
    """Else it would be a run without failures."""
    code, output = run(
        tmp_path,
        "def test_never_run(): pass",
        conftest="import os\n"
        "from tests.run import forked\n"
        "forked.Workers._give = lambda self, worker: None\n"
        "forked._work = lambda *_: os._exit(0)\n",
    )
    assert code not in (0, 5)
    assert "all workers have ended, and 1 units of the plan were not run" in output


def test_what_is_too_dear_for_each_run_is_left_to_the_soak(tmp_path: Path) -> None:
    tests = """
@pytest.mark.soak("an hour")
def test_long(): pass
def test_short(): pass
"""
    assert "1 passed, 1 deselected" in run(tmp_path, tests)[1]
    assert "1 passed, 1 deselected" in run(tmp_path, tests, "--soak")[1]


@pytest.mark.parametrize("reason", ["", '@pytest.mark.dear("there is no other way")\n'])
def test_a_test_over_its_budget_without_a_reason_is_named(tmp_path: Path, reason: str) -> None:
    _, output = run(
        tmp_path,
        f"""
{reason}def test_dear():
    until = time.process_time() + 0.3
    while time.process_time() < until: pass
""",
        conftest="from tests.run import costs\ncosts.SIMULATED = 0.2\n",
    )
    assert "CPU seconds of the dearest tests:" in output
    assert ("Over the budget" in output) == (not reason)


def test_a_server_costs_those_it_serves_and_not_the_one_that_ends_it(tmp_path: Path) -> None:
    _, output = run(
        tmp_path,
        """
import subprocess, sys
SERVE = "import sys, time; t = time.process_time()\\nwhile time.process_time() - t < 1: pass\\n"
SERVE += "print(flush=True); sys.stdin.read()"

@pytest.fixture(scope="module")
def server():
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SERVE], stdin=pipe, stdout=pipe) as process:
        yield process

def test_served(server): server.stdout.readline()
def test_ends_it(server): pass
""",
        conftest="from tests.run import costs\ncosts.SIMULATED = 0.5\n",
    )
    over = output.partition("Over the budget")[2].partition("CPU:")[0]
    assert "test_it.py::test_served" in over
    assert "test_it.py::test_ends_it" not in over
