"""The whole system with faults everywhere, by seeds; checked by the audit and by its end state.

`python -m tools.soak campaign --only SEED` prints one seed, `--seeds N` runs others.
"""

import pytest

from tests.component.campaign.campaign import run_seed, seed_report
from tests.component.campaign.scenario import scenario

SEEDS = tuple(range(40))
"""About two minutes on one processor."""


@pytest.mark.parametrize("seed", SEEDS)
def test_every_seed_keeps_the_invariants_and_ends(seed: int) -> None:
    result = run_seed(scenario(seed))
    assert not result.failures, seed_report(result)


def test_a_seed_gives_the_same_journal_each_time() -> None:
    first, second = (run_seed(scenario(12)) for _ in range(2))
    assert first.journal == second.journal
    assert first.lines == second.lines
