"""A seed repeats what happens on a faulty bus, to the byte."""

import os
import subprocess
import sys

import msgspec

from libs.testing.bus import TraceRecord
from libs.testing.simulation import run
from tests.unit.testing import bus_fault_run


def journal_of_a_process(*, seed: int, hashing: str) -> bytes:
    return subprocess.run(
        [sys.executable, "-m", bus_fault_run.__name__, str(seed)],
        env={**os.environ, "PYTHONHASHSEED": hashing},
        capture_output=True,
        check=True,
    ).stdout


def test_two_processes_write_the_same_journal() -> None:
    one = journal_of_a_process(seed=7, hashing="1")
    assert one == journal_of_a_process(seed=7, hashing="2")
    happened = {msgspec.json.decode(line, type=TraceRecord).what for line in one.splitlines()}
    assert happened == {
        "publish", "ask", "heard", "lost", "repeated", "reordered", "ensure", "store", "read",
        "call lost", "answer lost", "up", "down",
    }  # fmt: skip


def test_another_seed_is_another_storm() -> None:
    assert run(bus_fault_run.main, seed=7) != run(bus_fault_run.main, seed=8)
