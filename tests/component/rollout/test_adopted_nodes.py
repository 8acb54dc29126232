"""I8: a node adopted after its record was lost counts like any other (docs/invariants.md#i8)."""

import pytest

from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.wanted import InstallMethod
from libs.rollout.views.pool import PoolView
from libs.testing.stage import StageNodeSpec
from tests.component.rollout.simulation.disturbances import Disturbance
from tests.component.rollout.simulation.policies import (
    TARGETS,
    VARIANTS,
    builds_of,
    label_of,
    proven_before,
)
from tests.component.rollout.simulation.runner import run_scenario
from tests.component.rollout.simulation.scenario import KERNEL, Scenario

EARLIER, WANTED = TARGETS[:2]
LOST = "n2"

EDITED = (Disturbance(at=121.0, what="set_state", node=LOST, value="pod-restart-required"),)
"""A person writes a state in which a driver moves, beside the lost record."""
VALIDATING = (Disturbance(at=20.0, what="crash_driver", node=LOST),)
"""The restarted driver is being validated when the record is lost."""


@pytest.mark.parametrize(
    ("before", "sign"),
    [(EDITED, "n2: kubectl-edit writes metadata.labels"), (VALIDATING, "n2: validator begins")],
)
def test_an_adopted_node_starts_within_the_allowance_of_an_unproven_target(
    before: tuple[Disturbance, ...], sign: str
) -> None:
    nodes = tuple(
        StageNodeSpec(name=name, pool="p", variant=VARIANTS[0], kernel=KERNEL, target=EARLIER)
        for name in ("n1", LOST, "n3")
    )
    pool = PoolView(
        key="p",
        uid="uid-p",
        target=EARLIER,
        builds={target: builds_of("p", target, InstallMethod.CONTAINER) for target in TARGETS[:2]},
        upgrade=UpgradePolicy(auto_upgrade=True, max_unavailable="100%", max_parallel_upgrades=0),
        strategy=StrategySpec(pool="p", failure_threshold=1),
    )
    loss = (
        Disturbance(at=120.0, what="set_record", node=LOST),
        Disturbance(at=120.0, what="set_lease", node=LOST),
        Disturbance(at=130.0, what="set_request", node=LOST, value="adopt"),
        Disturbance(at=130.0, what="change_target", pool="p", value=WANTED),
    )
    result = run_scenario(
        Scenario(
            seed=3,
            pools=(proven_before(pool, nodes),),
            nodes=nodes,
            disturbances=tuple(sorted((*before, *loss), key=lambda each: each.at)),
            never_loads=frozenset({label_of("p", WANTED, VARIANTS[0])}),
        )
    )
    assert result.failure is None
    assert result.nodes_in_place == len(nodes)
    log = [text for _, text in result.stage.log_lines]
    adopted = next(number for number, text in enumerate(log) if text.startswith("n2: adopted"))
    assert any(text.startswith(sign) for text in log[:adopted])
    grants = [text for text in log[adopted:] if text.startswith("p: nodes started")]
    assert grants[0] == "p: nodes started: 1, grants n1 [Proving] 200"
