"""What ends a wait for the guest: what it does itself, never how busy the machine is."""

from pathlib import Path

import pytest

from libs.testing.guest.effort import MOST_RESTING, MOST_RUNNING, Effort


class Process:
    """The threads of a process, as `/proc` shows them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def thread(self, name: str, *, ran: float, waited: float = 0.0) -> None:
        (self.folder / name).mkdir(exist_ok=True)
        text = f"{int(ran * 1e9)} {int(waited * 1e9)} 7\n"
        (self.folder / name / "schedstat").write_text(text)

    def end(self, name: str) -> None:
        (self.folder / name / "schedstat").unlink()
        (self.folder / name).rmdir()


@pytest.fixture
def process(tmp_path: Path) -> Process:
    process = Process(tmp_path)
    process.thread("1", ran=5.0, waited=5.0)
    return process


def test_what_waits_for_a_processor_is_waited_for(process: Process) -> None:
    effort = Effort(process.folder, now=0.0)
    for second in range(1, 10_000, 100):
        process.thread("1", ran=5.0, waited=5.0 + second)
        effort.look(now=float(second))
    assert effort.problem() is None
    assert (effort.ran, effort.rested) == (0.0, 0.0)


def test_what_rests_is_given_up(process: Process) -> None:
    effort = Effort(process.folder, now=0.0)
    # The clock of a guest ticks.
    process.thread("1", ran=6.0, waited=5.0)
    effort.look(now=MOST_RESTING)
    assert effort.problem() is None
    effort.look(now=MOST_RESTING + 1.0)
    assert effort.problem() == "and has rested for 151 s"


def test_what_runs_without_end_is_given_up(process: Process) -> None:
    effort = Effort(process.folder, now=0.0)
    process.thread("1", ran=5.0 + MOST_RUNNING, waited=5.0)
    effort.look(now=MOST_RUNNING)
    assert effort.problem() is None
    process.thread("2", ran=1.0)
    effort.look(now=MOST_RUNNING + 1.0)
    assert effort.problem() == "in 601 s of a processor"


def test_a_thread_that_ends_takes_nothing_back(process: Process) -> None:
    process.thread("2", ran=100.0)
    effort = Effort(process.folder, now=0.0)
    process.thread("1", ran=6.0, waited=5.0)
    process.thread("2", ran=101.0)
    effort.look(now=1.0)
    process.end("2")
    process.thread("1", ran=7.0, waited=5.0)
    effort.look(now=2.0)
    assert (effort.ran, effort.rested) == (3.0, 0.0)
