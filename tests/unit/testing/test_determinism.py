"""A seed gives the same run: in one process, and in two that hash and allocate differently."""

import os
import subprocess
import sys
from pathlib import Path

from libs.testing.simulation import Sim, run
from tests.unit.testing import many_tasks

SCRIPT = Path(many_tasks.__file__)


def journal_of_a_process(*, seed: int, hashing: str, junk: int) -> bytes:
    """With `junk` objects in the way, so that others lie at other addresses."""
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(seed), str(junk)],
        env={**os.environ, "PYTHONHASHSEED": hashing},
        capture_output=True,
        check=True,
    ).stdout


def test_two_processes_write_the_same_journal() -> None:
    one = journal_of_a_process(seed=7, hashing="1", junk=10)
    other = journal_of_a_process(seed=7, hashing="2", junk=3_333)
    assert one == other
    assert one.count(b"\n") > 300


def test_a_named_random_source_is_independent_of_the_others() -> None:
    async def draw_only(sim: Sim) -> float:
        return sim.random_for("bus").random()

    async def draw_beside(sim: Sim) -> float:
        sim.random_for("kube").random()
        sim.random.random()
        sim.ids.new()
        return sim.random_for("bus").random()

    assert run(draw_only, seed=1) == run(draw_beside, seed=1) != run(draw_only, seed=2)
