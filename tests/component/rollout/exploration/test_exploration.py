"""One node, every order of events within a bound, every fault and every act at every moment.

How many states there are is part of what is asserted: an exploration that suddenly finds few has
lost sight of something. `python -m tools.soak explore` goes further.
"""

from collections.abc import Callable

import pytest

from libs.forecast.stage import Stage
from tests.component.rollout.exploration.explorer import Exploration, ExplorationStart, explore
from tests.component.rollout.exploration.starts import ACTS, FAULTS, bring_up, each, upgrade

MOST = 20_000

COVERED = {"agent_hangs", "agent_restarts"}
"""An agent that dies or forgets does the same and more; `soak explore` has them all."""


def explored(scene: ExplorationStart, *, swaps: int, at_least: int) -> Exploration:
    found = explore(scene, swaps=swaps, most=MOST)
    assert not found.wrong, found.wrong
    assert found.whole
    assert found.states >= at_least
    assert found.ends
    return found


@pytest.mark.parametrize(
    ("opened", "at_least"), [(upgrade, 300), (bring_up, 400)], ids=["upgrade", "bring-up"]
)
def test_any_two_events_may_swap_places(opened: Callable[[], Stage], at_least: int) -> None:
    explored(ExplorationStart(name="calm", opened=opened), swaps=1, at_least=at_least)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in COVERED])
def test_a_fault_may_strike_at_any_moment(fault: str) -> None:
    explored(
        ExplorationStart(name=fault, opened=upgrade, faults=each([fault])), swaps=0, at_least=150
    )


@pytest.mark.parametrize("act", ACTS)
def test_a_person_may_act_at_any_moment(act: str) -> None:
    explored(ExplorationStart(name=act, opened=upgrade, acts=each([act])), swaps=0, at_least=150)
