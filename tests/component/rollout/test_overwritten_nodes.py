"""I4 and I9: people overwrite what Sluice wrote to a node, and change the pool meanwhile."""

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
SECONDS = 9e4
"""How long a temporary edit lasts: beyond the repairs."""
LABEL = f"p-{TARGETS[1]}-{VARIANTS[0]}"
RECORD, STATE, DRIVER, POOL = "set_record", "set_state", "set_driver_label", "move_to_next_pool"


def play(
    *edits: tuple[str, str] | tuple[str, str, str],
    budget: int | str,
    pool: str = "p",
    method: InstallMethod = InstallMethod.CONTAINER,
    names: tuple[str, ...] = ("n1",),
    never_loads: frozenset[str] = frozenset(),
) -> list[str]:
    """Edit a node, the first if none is named, at intervals; return the log of the run.

    Each time the nodes are at rest. A node in the pool runs an old driver, and with a budget of 0
    it does so until the repairs. A node in no pool never had a driver.
    """
    nodes = tuple(
        StageNodeSpec(name=name, pool=pool, variant=VARIANTS[0], kernel=KERNEL, target=TARGETS[0])
        for name in names
    )
    policy = PoolView(
        key="p",
        uid="uid-p",
        target=TARGETS[1],
        method=method,
        builds={name: builds_of("p", name, method) for name in TARGETS[:2]},
        upgrade=UpgradePolicy(auto_upgrade=True, max_unavailable=budget),
        strategy=StrategySpec(pool="p", failure_threshold=3, retries=0),
    )
    disturbances = tuple(
        Disturbance(
            at=number * INTERVAL,
            what=what,
            node="".join(name) or names[0],
            pool="p",
            value=value,
            seconds=SECONDS,
        )
        for number, (what, value, *name) in enumerate(edits, 1)
    )
    pools = (proven_before(policy, nodes),)
    scene = Scenario(
        seed=3, pools=pools, nodes=nodes, disturbances=disturbances, never_loads=never_loads
    )
    result = run_scenario(scene)
    assert result.failure is None
    assert result.nodes_in_place == len(nodes)
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
    lines = play(("exclude", ""), (DRIVER, LABEL), budget=1, method=method)
    assert sum(text.startswith(removal) for text in lines) == 2


@pytest.mark.parametrize("budget", [1, "100%", 2])
def test_a_node_can_leave_its_pool_while_the_other_is_cordoned(budget: int | str) -> None:
    """With a budget of 1 it waits until that is raised to 100 %."""
    lines = play(("cordon", ""), (POOL, "", "n2"), budget=budget, names=("n1", "n2"))
    removed = "n2: the driver is removed; the node is no longer managed"
    assert any(text.startswith(removed) for text in lines)


def test_a_failed_node_uses_the_budget_although_a_person_removed_its_state() -> None:
    lines = play(
        (STATE, ""),
        ("set_lease", "garbled"),
        (STATE, ""),
        ("set_skip", "", "n2"),
        budget=1,
        names=("n1", "n2"),
        never_loads=frozenset({LABEL}),
    )
    assert sum(text.startswith("n1: restore the state label") for text in lines) == 1
