"""One node whose GPUs are divided: faults at every moment of it and an upgrade, acts without one.

`python -m tools.soak explore` has faults and acts in both, with swaps.
"""

from collections.abc import Callable

import pytest

from libs.testing.stage import SimulatedStage
from tests.component.rollout.exploration.explorer import ExplorationStart, explore
from tests.component.rollout.exploration.starts import disturbances, divide, divide_and_upgrade

MOST = 20_000
STRIDE = 3
"""In `python -m tools.soak explore` everything may happen at every moment."""
FAULTS = (
    "crash_driver",
    "reboot",
    "power_off",
    "disconnect_agents",
    "stop_agent",
    "lose_agent_journal",
    "elect_leader",
    "stop_bus",
)
ACTS = (
    "set_mig_config",
    "uncordon",
    "set_state",
    "set_driver_label",
    "delete_driver_pod",
    "delete_node",
    "change_target",
    "set_brake",
    "delete_rollout",
)


@pytest.mark.parametrize("new_stage", [divide, divide_and_upgrade])
def test_any_two_events_may_swap(new_stage: Callable[[], SimulatedStage]) -> None:
    found = explore(ExplorationStart(name="calm", new_stage=new_stage), swaps=1, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states > 300


@pytest.mark.dear("the play of each moment: that is what it shows")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_may_strike_at_any_moment(fault: str) -> None:
    start = ExplorationStart(
        name=fault,
        new_stage=divide_and_upgrade,
        stride=STRIDE,
        faults=disturbances([fault]),
    )
    found = explore(start, swaps=0, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states > 150


@pytest.mark.parametrize("act", ACTS)
def test_a_user_may_act_at_any_moment(act: str) -> None:
    start = ExplorationStart(name=act, new_stage=divide, stride=STRIDE, acts=disturbances([act]))
    found = explore(start, swaps=0, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states > 100
