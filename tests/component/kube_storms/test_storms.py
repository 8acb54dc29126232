"""After any storm of faults the caches are what the server has, and nothing told was a lie.

A failure names its seed, and `SEEDS=17` in the environment plays that one alone; `SEEDS=100-900`
plays others than those of every day.
"""

import os
from collections import Counter

import pytest

from libs.testing.simulation import Sim, run
from tests.component.kube_storms.faults import ALL_FAULTS
from tests.component.kube_storms.storm import Storm

BATCH = 10
BATCHES = 4


def batches() -> list[range]:
    first, _, end = os.environ.get("SEEDS", f"0-{BATCHES * BATCH}").partition("-")
    seeds = range(int(first), int(end or int(first) + 1))
    return [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]


def play(seed: int) -> Storm:
    played: list[Storm] = []

    async def main(sim: Sim) -> None:
        played.append(Storm(sim))
        await played[0].run()

    run(main, seed=seed)
    return played[0]


@pytest.mark.parametrize("seeds", batches(), ids=str)
def test_nothing_is_lost_in_a_storm(seeds: range) -> None:
    struck: Counter[str] = Counter()
    proven = 0
    for seed in seeds:
        try:
            storm = play(seed)
            assert storm.violations[:5] == []
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        struck += storm.faults.injected
        proven += storm.proven
    if len(seeds) == BATCH:
        assert set(struck) == ALL_FAULTS
        assert proven > BATCH


def test_a_seed_repeats_its_storm() -> None:
    one, again = play(7), play(7)
    assert list(one.truth.revisions) == list(again.truth.revisions)
    assert one.writer.attempts == again.writer.attempts
    assert one.faults.injected == again.faults.injected
    assert [each.held for each in one.followers] == [each.held for each in again.followers]
