"""The whole system by seeds: faults on every seam, judged by the audit, the machines and the end.

`python -m tools.soak campaign --only SEED` tells a seed's story, `--seeds N` tries others.
"""

import pytest

from tests.component.campaign.campaign import run_seed, seed_report
from tests.component.campaign.scenario import scenario

SEEDS = tuple(range(40))
"""About three minutes of one processor."""


@pytest.mark.parametrize("seed", SEEDS)
def test_every_seed_keeps_its_promises_and_comes_to_its_end(
    seed: int, played_seeds: list[int]
) -> None:
    told = run_seed(scenario(seed))
    played_seeds.append(seed)
    assert not told.failures, seed_report(told)


def test_a_seed_is_the_same_story_each_time() -> None:
    (one, other) = (run_seed(scenario(12)) for _ in range(2))
    assert one.journal == other.journal
    assert one.lines == other.lines
