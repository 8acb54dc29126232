"""One node whose GPUs fail: at every moment, and with faults and acts when they had failed before.

`python -m tools.soak engine` has seeds in which GPUs of whole fleets fail.
"""

from collections.abc import Callable

import pytest

from libs.contracts.node import UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout.decide import decide
from libs.testing.not_none import not_none
from libs.testing.stage import SimulatedStage
from tests.component.rollout.exploration.explorer import ExplorationStart, explore
from tests.component.rollout.exploration.starts import (
    bring_up,
    disturbances,
    upgrade,
    upgrade_with_broken_gpus,
    upgrade_with_failed_gpu,
)
from tests.component.rollout.simulation.disturbances import DisturbanceContext

MOST = 20_000
STRIDE = 3
"""`python -m tools.soak explore` lets everything happen at every moment, with swaps."""
FAULTS = ("reboot", "disconnect_agents", "stop_agent", "stop_bus", "freeze_view")
ACTS = ("set_operator_request", "set_state", "set_request", "change_target", "delete_driver_pod")
BEFORE = pytest.mark.parametrize("new_stage", [upgrade_with_failed_gpu, upgrade_with_broken_gpus])


def requested(new_stage: Callable[[], SimulatedStage]) -> Callable[[], SimulatedStage]:
    """Return the same stage with an upgrade that a person requested."""

    def requested_stage() -> SimulatedStage:
        stage = new_stage()
        DisturbanceContext.of(stage.state).users.set_operator_request("n1")
        return stage

    return requested_stage


@pytest.mark.parametrize("new_stage", [upgrade, bring_up])
def test_gpus_may_fail_at_any_moment(new_stage: Callable[[], SimulatedStage]) -> None:
    start = ExplorationStart(
        name="fail_gpus",
        new_stage=new_stage,
        stride=STRIDE,
        faults=disturbances(["fail_gpus"]),
    )
    found = explore(start, swaps=0, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states > 500


@pytest.mark.parametrize("what", [*FAULTS, *ACTS])
def test_faults_and_acts_while_gpus_had_failed_before(what: str) -> None:
    """The driver cures them before the faults, and not before the acts."""
    before = upgrade_with_failed_gpu if what in FAULTS else upgrade_with_broken_gpus
    start = ExplorationStart(
        name=what,
        new_stage=requested(before),
        stride=STRIDE,
        faults=disturbances([what]) if what in FAULTS else (),
        acts=disturbances([what]) if what in ACTS else (),
    )
    found = explore(start, swaps=0, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states > 150


def at_rest(stage: SimulatedStage) -> SimulatedStage:
    """Run the stage until nothing happens for an hour."""
    until = stage.now + 3600.0
    while stage.now < until:
        stage.carry_out(decide(stage.fleet(), stage.instant()))
        stage.advance() if stage.next_at is not None else stage.run_until(until)
    return stage


@BEFORE
def test_a_requested_upgrade_is_proven_whether_or_not_the_driver_cures_the_gpu(
    new_stage: Callable[[], SimulatedStage],
) -> None:
    stage = at_rest(requested(new_stage)())
    node = not_none(stage.node("n1"))
    assert (node.state, node.cordoned) == (UpgradeState.UPGRADE_DONE, False)
    cured = new_stage is upgrade_with_failed_gpu
    assert len(node.failed_gpus) == (0 if cured else 2)


@BEFORE
def test_without_a_request_the_node_waits(new_stage: Callable[[], SimulatedStage]) -> None:
    stage = at_rest(new_stage())
    wait = decide(stage.fleet(), stage.instant()).waits["n1"]
    assert wait.code is WaitCode.GPU_FAILED
    assert wait.detail.startswith("GPU-0 at 0000:00:00.0 has failed: the GPU fell off the bus")
