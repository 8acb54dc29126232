"""The whole system with faults everywhere, by seeds; checked by the audit and by its end state.

`python -m tools.soak campaign --only SEED` prints one seed, `--seeds N` runs others.
"""

import pytest

from services.driver.node.gate_keeper import GateKeeper
from tests.component.campaign.campaign import run_seed, seed_report
from tests.component.campaign.scenario import scenario

SEEDS = tuple(range(6))
"""`make soak ARGS=campaign` begins with the same."""
DIVIDING_SEED = 1003
"""A seed in which GPUs are divided, too, while driver agents are killed and machines rebooted."""
UNPROVING_SEED = 8
"""A seed in which only a proof is withdrawn while a driver pod waits at the gate."""


@pytest.mark.parametrize("seed", [*SEEDS, DIVIDING_SEED])
def test_every_seed_keeps_the_invariants_and_ends(seed: int) -> None:
    result = run_seed(scenario(seed))
    assert not result.failures, seed_report(result)


def test_a_seed_gives_the_same_journal_each_time() -> None:
    first, second = (run_seed(scenario(12)) for _ in range(2))
    assert first.journal == second.journal
    assert first.lines == second.lines


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
