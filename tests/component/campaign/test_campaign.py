"""The whole system with faults everywhere, by seeds; checked by the audit and by its end state.

`python -m tools.soak campaign --only SEED` prints one seed, `--seeds N` runs others.
"""

from functools import cache

import pytest

from services.driver.node.gate_keeper import GateKeeper
from tests.component.campaign.campaign import SeedResult, run_seed, seed_report
from tests.component.campaign.scenario import scenario

SEEDS = (0, 1, 2, 4, 6)
"""`make soak ARGS=campaign` begins with the same, and with those of large fleets."""
LARGE_SEEDS = (3, 5)
REPEATED_SEED = 4
DIVIDING_SEED = 1003
"""A seed in which GPUs are divided, too, while driver agents are killed and machines rebooted."""
UNPROVING_SEED = 8
"""A seed in which only a proof is withdrawn while a driver pod waits at the gate."""


SOAK = pytest.mark.soak("eight nodes cost three times as much; fleets of 3 to 5 are in each run")


@cache
def first_run(seed: int) -> SeedResult:
    return run_seed(scenario(seed))


@pytest.mark.dear("all services, agents and machines at once, under faults of all kinds")
@pytest.mark.parametrize(
    "seed",
    [*SEEDS, *(pytest.param(seed, marks=SOAK) for seed in LARGE_SEEDS), DIVIDING_SEED],
)
def test_every_seed_keeps_the_invariants_and_ends(seed: int) -> None:
    result = first_run(seed)
    assert not result.failures, seed_report(result)


@pytest.mark.dear("all services, agents and machines at once, under faults of all kinds")
def test_a_seed_gives_the_same_journal_each_time() -> None:
    first, second = first_run(REPEATED_SEED), run_seed(scenario(REPEATED_SEED))
    assert first.journal == second.journal
    assert first.lines == second.lines


@pytest.mark.dear("all services, agents and machines at once, under faults of all kinds")
def test_a_gate_keeper_that_does_not_read_the_command_again_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check_with_first_answer(keeper: GateKeeper) -> None:
        proven = keeper._proven()  # pyright: ignore[reportPrivateUsage]
        with monkeypatch.context() as patch:
            patch.setattr(keeper, "_proven", lambda: proven)
            await keeper._check(proven, by_disk=False)  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(GateKeeper, "check", check_with_first_answer)
    failures = run_seed(scenario(UNPROVING_SEED)).failures
    assert [failure.partition(":")[0] for failure in failures] == ["gate"]
    assert failures[0].endswith("after idle 2.3 had begun")
