"""Runs of a faulty bus with one seed write the same bytes."""

import os
import subprocess
import sys

import msgspec

from libs.testing.bus import TraceRecord
from tests.unit.testing import bus_fault_run


def journal_of_a_process(*, seed: int, hash_seed: str) -> bytes:
    return subprocess.run(
        [sys.executable, "-m", bus_fault_run.__name__, str(seed)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    ).stdout


def test_two_processes_write_the_same_journal() -> None:
    journal = journal_of_a_process(seed=7, hash_seed="1")
    assert journal == journal_of_a_process(seed=7, hash_seed="2")
    kinds = {msgspec.json.decode(line, type=TraceRecord).action for line in journal.splitlines()}
    assert kinds == {
        "publish", "ask", "heard", "lost", "repeated", "reordered", "ensure", "store", "read",
        "call lost", "answer lost", "up", "down",
    }  # fmt: skip
