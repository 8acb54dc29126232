"""I7: what befalls some machines of a pool delays none of the others (docs/invariants.md#i7)."""

from collections.abc import Sequence

import pytest

from libs.audit import AuditJournal, isolation
from libs.contracts.identities import Writer
from libs.forecast.stage import StageNodeSpec
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.wanted import InstallMethod
from libs.rollout.views.pool import PoolView
from tests.component.rollout.simulation.disturbances import Disturbance
from tests.component.rollout.simulation.policies import TARGETS, VARIANTS, builds_of, proven_before
from tests.component.rollout.simulation.runner import run_scenario
from tests.component.rollout.simulation.scenario import KERNEL, Scenario

HEALTHY = tuple(f"n{number}" for number in range(9))
SICK = ("a1", "a2")
"""By name they come first, so they are under way when it befalls them."""
PLACES = 3
SECONDS = 5.0
"""What decisions about the others may cost."""


LASTS = 6000.0


def pool(nodes: Sequence[StageNodeSpec], places: int) -> PoolView:
    made = PoolView(
        key="p",
        uid="uid-p",
        target=TARGETS[1],
        builds={target: builds_of("p", target, InstallMethod.CONTAINER) for target in TARGETS[:2]},
        upgrade=UpgradePolicy(auto_upgrade=True, max_unavailable=places, max_parallel_upgrades=0),
        strategy=StrategySpec(pool="p", failure_threshold="100%"),
    )
    return proven_before(made, tuple(nodes))


def run_rollout(sick: Sequence[str] = (), what: str = "", *, places: int = PLACES) -> AuditJournal:
    nodes = tuple(
        StageNodeSpec(name=name, pool="p", variant=VARIANTS[0], kernel=KERNEL, target=TARGETS[0])
        for name in (*sick, *HEALTHY)
    )
    acts = tuple(
        Disturbance(
            at=20.0, what=what, node=name, pool="p", value=Writer.DRIVER.value, seconds=LASTS
        )
        for name in sick
    )
    played = run_scenario(
        Scenario(seed=3, pools=(pool(nodes, places),), nodes=nodes, acts=acts, think=0.05)
    )
    assert played.wrong is None
    assert played.done == len(nodes)
    return played.stage.journal()


@pytest.mark.parametrize(
    "what", ["loses_power", "kubelet_is_cut_off", "agents_are_cut_off", "agent_hangs", "agent_dies"]
)
def test_the_others_finish_when_they_would_have_without_them(what: str) -> None:
    beside = run_rollout(SICK, what, places=PLACES + len(SICK))
    assert isolation(beside, run_rollout(), sick=SICK, tolerance=SECONDS) == ()


def test_but_for_the_places_in_the_budget_that_they_occupy() -> None:
    crowded = isolation(
        run_rollout(SICK, "loses_power"), run_rollout(), sick=SICK, tolerance=SECONDS
    )
    assert {one.invariant for one in crowded} == {"I7"}
    assert len(crowded) >= len(HEALTHY) - PLACES
