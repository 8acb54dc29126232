"""One node whose lease a person takes, and returns, at every moment; faults strike beside that."""

from collections.abc import Callable

import pytest

from libs.testing.stage import SimulatedStage
from tests.component.rollout.exploration.explorer import ExplorationStart, explore
from tests.component.rollout.exploration.starts import (
    bring_up,
    disturbances,
    divide,
    in_place,
    upgrade,
)

MOST = 6_000
MOST_WITH_A_FAULT = 1_000
STRIDE = 2
"""`python -m tools.soak explore` lets everything happen at every moment, with swaps."""
FAULTS = ("reboot", "stop_agent", "elect_leader", "freeze_view")
LEASES = disturbances(["take_lease"])


@pytest.mark.dear("the play of each moment: that is what it shows")
@pytest.mark.parametrize("new_stage", [upgrade, in_place, bring_up, divide])
def test_a_person_may_take_the_lease_at_any_moment(
    new_stage: Callable[[], SimulatedStage],
) -> None:
    start = ExplorationStart(name="lease", new_stage=new_stage, stride=STRIDE, acts=LEASES)
    found = explore(start, swaps=0, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states > 10


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_may_strike_while_a_person_has_or_claims_the_lease(fault: str) -> None:
    faults = disturbances([fault])[:2]
    start = ExplorationStart(
        name=fault, new_stage=upgrade, stride=STRIDE, faults=faults, acts=LEASES
    )
    found = explore(start, swaps=0, most=MOST_WITH_A_FAULT)
    assert not found.failure, found.failure
    assert found.states > 300
