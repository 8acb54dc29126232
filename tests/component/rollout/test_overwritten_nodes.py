"""I4 and I9: people overwrite everything that Sluice wrote to a node."""

import pytest

from libs.contracts.node import UpgradeState
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.wanted import InstallMethod
from libs.rollout.views.pool import PoolView
from libs.testing.stage import StageNodeSpec
from tests.component.rollout.simulation.disturbances import Disturbance
from tests.component.rollout.simulation.policies import TARGETS, VARIANTS, builds_of, proven_before
from tests.component.rollout.simulation.runner import run_scenario
from tests.component.rollout.simulation.scenario import KERNEL, Scenario

INTERVAL = 1500.0
"""Seconds between two edits; an upgrade or the removal of a driver takes less."""
RECORD, STATE, DRIVER, POOL = "set_record", "set_state", "set_driver_label", "move_to_next_pool"


def play(
    *edits: tuple[str, str],
    budget: int,
    pool: str = "p",
    method: InstallMethod = InstallMethod.CONTAINER,
) -> list[str]:
    """Edit a node at intervals, each time at rest; return the log of the run.

    A node in the pool runs an old driver, and with a budget of 0 it does so until the repairs. A
    node in no pool never had a driver.
    """
    node = StageNodeSpec(
        name="n1", pool=pool, variant=VARIANTS[0], kernel=KERNEL, target=TARGETS[0]
    )
    policy = PoolView(
        key="p",
        uid="uid-p",
        target=TARGETS[1],
        method=method,
        builds={name: builds_of("p", name, method) for name in TARGETS[:2]},
        upgrade=UpgradePolicy(auto_upgrade=True, max_unavailable=budget),
        strategy=StrategySpec(pool="p"),
    )
    disturbances = tuple(
        Disturbance(at=number * INTERVAL, what=what, node="n1", pool="p", value=value, seconds=9e3)
        for number, (what, value) in enumerate(edits, 1)
    )
    pools = (proven_before(policy, (node,)),)
    result = run_scenario(Scenario(seed=3, pools=pools, nodes=(node,), disturbances=disturbances))
    assert result.failure is None
    assert result.nodes_in_place == 1
    return [text for _, text in result.stage.log_lines]


LABELS = ((DRIVER, "no-such-label"), (STATE, UpgradeState.UPGRADE_FAILED.value))


@pytest.mark.parametrize(("record", "adoptions"), [("garbled", 0), ("", 1)])
@pytest.mark.parametrize("budget", [0, 1])
def test_only_a_node_without_a_damaged_record_is_adopted_from_another_operator(
    record: str, adoptions: int, budget: int
) -> None:
    lines = play((RECORD, record), *LABELS, budget=budget)
    taken_over = [text for text in lines if text.startswith("n1: another operator left the node")]
    assert len(taken_over) == adoptions


def test_a_damaged_record_of_a_node_that_left_its_pool_is_reported() -> None:
    lines = play((POOL, ""), (RECORD, "garbled"), budget=1)
    assert "n1: the driver is removed; the node is no longer managed" in "\n".join(lines)


def test_a_note_on_a_node_that_was_never_ours_needs_no_report() -> None:
    assert play((RECORD, "garbled"), budget=1, pool="")


@pytest.mark.parametrize(
    ("method", "removal"),
    [
        (InstallMethod.PRE_INSTALLED, "n1: the pre-installed driver stays"),
        (InstallMethod.CONTAINER, "n1: the driver is removed; the node is no longer managed"),
    ],
)
def test_a_driver_label_that_a_person_sets_on_an_excluded_node_is_removed_once(
    method: InstallMethod, removal: str
) -> None:
    label = f"p-{TARGETS[1]}-{VARIANTS[0]}"
    lines = play(("exclude", ""), (DRIVER, label), budget=1, method=method)
    assert sum(text.startswith(removal) for text in lines) == 2
