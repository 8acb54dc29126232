"""I7: a fault on some machines of a pool does not delay the others (docs/invariants.md#i7)."""

from collections.abc import Sequence

import pytest

from libs.audit import AuditJournal, isolation
from libs.contracts.identities import Writer
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.wanted import InstallMethod
from libs.rollout.views.pool import PoolView
from libs.testing.stage import StageNodeSpec
from tests.component.rollout.simulation.disturbances import Disturbance
from tests.component.rollout.simulation.policies import TARGETS, VARIANTS, builds_of, proven_before
from tests.component.rollout.simulation.runner import run_scenario
from tests.component.rollout.simulation.scenario import KERNEL, Scenario

HEALTHY = tuple(f"n{number}" for number in range(9))
SICK = ("a1", "a2")
"""First by name, so that they are in flight when the fault strikes."""
BUDGET = 3
TOLERANCE = 5.0
"""Seconds that decisions about other nodes may cost."""
FAULT_SECONDS = 6000.0


def run_rollout(sick: Sequence[str] = (), fault: str = "", *, budget: int = BUDGET) -> AuditJournal:
    nodes = tuple(
        StageNodeSpec(name=name, pool="p", variant=VARIANTS[0], kernel=KERNEL, target=TARGETS[0])
        for name in (*sick, *HEALTHY)
    )
    pool = PoolView(
        key="p",
        uid="uid-p",
        target=TARGETS[1],
        builds={target: builds_of("p", target, InstallMethod.CONTAINER) for target in TARGETS[:2]},
        upgrade=UpgradePolicy(auto_upgrade=True, max_unavailable=budget, max_parallel_upgrades=0),
        strategy=StrategySpec(pool="p", failure_threshold="100%"),
    )
    faults = tuple(
        Disturbance(
            at=20.0,
            what=fault,
            node=name,
            pool="p",
            value=Writer.DRIVER.value,
            seconds=FAULT_SECONDS,
        )
        for name in sick
    )
    pools = (proven_before(pool, nodes),)
    result = run_scenario(
        Scenario(seed=3, pools=pools, nodes=nodes, disturbances=faults, decision_delay=0.05)
    )
    assert result.failure is None
    assert result.nodes_in_place == len(nodes)
    return result.stage.journal()


@pytest.mark.parametrize(
    "fault", ["power_off", "disconnect_kubelet", "disconnect_agents", "hang_agent", "stop_agent"]
)
def test_a_fault_does_not_delay_the_other_nodes(fault: str) -> None:
    beside = run_rollout(SICK, fault, budget=BUDGET + len(SICK))
    assert isolation(beside, run_rollout(), sick=SICK, tolerance=TOLERANCE) == ()


def test_a_fault_delays_the_other_nodes_where_it_uses_up_the_budget() -> None:
    crowded = run_rollout(SICK, "power_off")
    violations = isolation(crowded, run_rollout(), sick=SICK, tolerance=TOLERANCE)
    assert {violation.invariant for violation in violations} == {"I7"}
    assert len(violations) >= len(HEALTHY) - BUDGET
