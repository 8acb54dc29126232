"""The pool responsible for a node that no pool selects any more."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import UpgradeState, WaitCode
from libs.rollout.views.node import NodeView
from tests.unit.rollout.allocate.builders import code_of, decided, of_target, open_pool
from tests.unit.rollout.builders import OLD, done, label_of, node, required

POOL = open_pool(record=of_target())


@pytest.mark.parametrize(
    "left",
    [done(pool=""), required(pool=""), required(pool="", driver_label="")],
    ids=["done", "stamped", "stamped, and its driver label was stripped"],
)
def test_an_unselected_node_is_released_by_the_pool_in_its_record(left: NodeView) -> None:
    assert list(decided(POOL, left).steps) == [left.name]


def test_an_unselected_node_that_was_never_ours_is_left_alone() -> None:
    decision = decided(POOL, node(pool="", state=UpgradeState.UPGRADE_DONE))
    assert (decision.steps, decision.waits) == ({}, {})


@pytest.mark.parametrize("label", [label_of(OLD), "unknown"])
def test_an_unselected_node_without_a_record_reports_the_loss(label: str) -> None:
    lost = replace(done(OLD, pool=""), record=None, driver_label=label)
    decision = decided(POOL, lost)
    assert code_of(decision, lost.name) is WaitCode.RECORD_LOST
