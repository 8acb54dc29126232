"""One node: every order of events within a bound, and faults and acts at every moment.

The tests assert how many states there are: an exploration that suddenly finds few is blind.
`python -m tools.soak explore` has every start, fault and act, with swaps.
"""

from collections.abc import Callable

import pytest

from libs.testing.stage import SimulatedStage
from tests.component.rollout.exploration.explorer import Exploration, ExplorationStart, explore
from tests.component.rollout.exploration.starts import (
    ACTS,
    FAULTS,
    bring_up,
    disturbances,
    upgrade,
)

MOST = 20_000

COVERED = {"hang_agent", "restart_agent"}
"""Faults whose states `stop_agent` and `lose_agent_journal` reach as well."""


def explore_all(start: ExplorationStart, *, swaps: int, at_least: int) -> Exploration:
    found = explore(start, swaps=swaps, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states >= at_least
    assert found.ends
    return found


@pytest.mark.parametrize(
    ("new_stage", "at_least"), [(upgrade, 478), (bring_up, 580)], ids=["upgrade", "bring-up"]
)
def test_any_two_events_may_swap(new_stage: Callable[[], SimulatedStage], at_least: int) -> None:
    start = ExplorationStart(name="calm", new_stage=new_stage)
    explore_all(start, swaps=1, at_least=at_least)


@pytest.mark.dear("the play of each moment: that is what it shows")
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in COVERED])
def test_a_fault_may_strike_at_any_moment(fault: str) -> None:
    start = ExplorationStart(name=fault, new_stage=upgrade, faults=disturbances([fault]))
    explore_all(start, swaps=0, at_least=200)


@pytest.mark.dear("the play of each moment: that is what it shows")
@pytest.mark.parametrize("act", ACTS)
def test_a_user_may_act_at_any_moment(act: str) -> None:
    start = ExplorationStart(name=act, new_stage=upgrade, acts=disturbances([act]))
    explore_all(start, swaps=0, at_least=200)
