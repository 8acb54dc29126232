"""I3: a driver ends after its validation, while the Pods are not seen (docs/invariants.md#i3)."""

import pytest

from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.wanted import InstallMethod
from libs.rollout.views.pool import PoolView
from libs.testing.stage import StageNodeSpec
from tests.component.rollout.simulation.disturbances import Disturbance
from tests.component.rollout.simulation.policies import TARGETS, VARIANTS, builds_of, proven_before
from tests.component.rollout.simulation.runner import run_scenario
from tests.component.rollout.simulation.scenario import KERNEL, Scenario

FROZEN_AT, SEEN_AT = 230.0, 330.0
"""The watch of the Pods stands still; the validation ends in between."""
STOPPED = 20.0
"""Seconds from the end of the validation to the next decision."""
START = 1_000_000.0
RELEASED = "n1: validated; back in service"


@pytest.mark.parametrize("end", ["crash", "delete", "force"])
def test_a_node_does_not_return_on_old_data_about_its_driver(end: str) -> None:
    node = StageNodeSpec(name="n1", pool="p", variant=VARIANTS[0], kernel=KERNEL, target=TARGETS[0])
    policy = PoolView(
        key="p",
        uid="uid-p",
        target=TARGETS[1],
        builds={name: builds_of("p", name, InstallMethod.CONTAINER) for name in TARGETS[:2]},
        upgrade=UpgradePolicy(auto_upgrade=True, max_unavailable=1),
        strategy=StrategySpec(pool="p", failure_threshold=3, retries=0),
    )
    disturbances = (
        Disturbance(at=FROZEN_AT, what="freeze_view", value="pods", seconds=SEEN_AT - FROZEN_AT),
        Disturbance(at=FROZEN_AT, what="end_driver_unseen", node="n1", value=end, seconds=STOPPED),
    )
    result = run_scenario(
        Scenario(
            seed=3, pools=(proven_before(policy, (node,)),), nodes=(node,),
            disturbances=disturbances,
        )
    )  # fmt: skip
    assert (result.failure, result.nodes_in_place) == (None, 1)
    lines = result.stage.log_lines
    validated = [time - START for time, text in lines if "validator ends validate" in text]
    released = [time - START for time, text in lines if text.startswith(RELEASED)]
    assert FROZEN_AT < validated[0] < SEEN_AT - STOPPED
    assert len(validated) == 2
    assert validated[1] < released[0]
    assert len(released) == 1
