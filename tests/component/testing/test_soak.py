"""A soak that is stopped, as a process."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.dear("the programs of the soak start, with all that they simulate")
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_soak_that_is_stopped_tells_what_it_judged(stop: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.soak", "engine", "--seeds", "800"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(stop)
    rest, _ = process.communicate()
    assert first.startswith("8 of 800 seeds, ")
    last = rest.splitlines()[-1]
    assert last.startswith("stopped after ")
    assert " of 800 seeds, " in last
    assert "Traceback" not in rest
    assert process.returncode == 130
