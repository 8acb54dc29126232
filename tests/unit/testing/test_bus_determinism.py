"""A seed repeats a run of a faulty bus, byte for byte."""

import os
import subprocess
import sys

import msgspec

from libs.testing.bus import TraceRecord
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
