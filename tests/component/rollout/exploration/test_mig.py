"""One node whose GPUs are divided: faults and acts at every moment, alone and with an upgrade."""

from collections.abc import Callable

import pytest

from libs.testing.stage import SimulatedStage
from tests.component.rollout.exploration.explorer import ExplorationStart, explore
from tests.component.rollout.exploration.starts import disturbances, divide, divide_and_upgrade

MOST = 20_000
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
STARTS = pytest.mark.parametrize("new_stage", [divide, divide_and_upgrade])


@STARTS
def test_any_two_events_may_swap(new_stage: Callable[[], SimulatedStage]) -> None:
    found = explore(ExplorationStart(name="calm", new_stage=new_stage), swaps=1, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states > 300


@STARTS
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_may_strike_at_any_moment(
    new_stage: Callable[[], SimulatedStage], fault: str
) -> None:
    start = ExplorationStart(name=fault, new_stage=new_stage, faults=disturbances([fault]))
    found = explore(start, swaps=0, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states > 150


@STARTS
@pytest.mark.parametrize("act", ACTS)
def test_a_user_may_act_at_any_moment(new_stage: Callable[[], SimulatedStage], act: str) -> None:
    start = ExplorationStart(name=act, new_stage=new_stage, acts=disturbances([act]))
    found = explore(start, swaps=0, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states > 100
