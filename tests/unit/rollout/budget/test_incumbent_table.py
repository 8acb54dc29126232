"""The budget table of the GPU Operator, on a proven target.

A row in which we differ has a test of its own, which says why.
"""

import pytest
from msgspec.structs import replace

from libs.policy.kinds.strategy import StrategySpec
from libs.rollout.views.node import NodeView
from tests.unit.rollout.allocate.builders import (
    candidate,
    candidates,
    granted_to,
    of_target,
    open_pool,
)
from tests.unit.rollout.builders import done, failed

TEN = candidates(10)


def cordoned(nodes: list[NodeView]) -> list[NodeView]:
    return [replace(node, cordoned=True) for node in nodes]


AWAY = [done(f"away-{n}", ready=False) for n in range(3)]
FAILED = [failed(f"failed-{n}") for n in range(2)]
SKIPPED = [replace(node, skip=True) for node in candidates(8)[:2]]


@pytest.mark.parametrize(
    ("parallel", "most", "nodes", "started"),
    [
        (1, "25%", TEN, 1),
        (0, "25%", TEN, 3),
        (5, "25%", TEN, 3),
        (1, "25%", TEN[:1], 1),
        (0, "1%", TEN[:3], 1),
        (0, 0, TEN[:4], 0),
        (1, "25%", [*(done(f"done-{n}") for n in range(6)), *AWAY, TEN[0]], 0),
        (2, "100%", [*SKIPPED, *candidates(8)[2:]], 2),
        (0, 8, [*candidates(8)[:5], *cordoned(candidates(8)[5:])], 8),
        (0, 20, TEN[:5], 5),
    ],
)
def test_how_many_start(
    parallel: int, most: int | str, nodes: list[NodeView], started: int
) -> None:
    pool = open_pool(
        upgrade={"max_parallel_upgrades": parallel, "max_unavailable": most},
        record=of_target(),
        base=len(nodes),
    )
    assert len(granted_to(pool, *nodes)) == started


def test_failed_nodes_take_no_parallel_slot() -> None:
    """With the GPU Operator none starts, and the rollout never ends.

    Here a failed node frees its parallel slot; it stays unavailable.
    """
    pool = open_pool(
        upgrade={"max_parallel_upgrades": 2, "max_unavailable": "50%"},
        record=of_target(threshold=3),
        base=10,
        strategy=StrategySpec(retries=0),
    )
    assert len(granted_to(pool, *candidates(8), *FAILED)) == 2


def test_cordoned_nodes_start_first_where_they_cost_no_budget() -> None:
    """The GPU Operator starts them beyond maxParallel; here each takes a parallel slot."""
    nodes = [*candidates(3), *cordoned(candidates(6)[3:])]
    pool = open_pool(
        upgrade={"max_parallel_upgrades": 2, "max_unavailable": 1}, record=of_target(), base=6
    )
    assert granted_to(pool, *nodes) == ["node-03", "node-04"]


def test_at_a_hundred_percent_a_node_that_is_not_ready_does_not_start() -> None:
    """The GPU Operator starts it."""
    nodes = [*candidates(4), candidate("away", ready=False)]
    pool = open_pool(
        upgrade={"max_parallel_upgrades": 0, "max_unavailable": "100%"}, record=of_target(), base=5
    )
    assert granted_to(pool, *nodes) == ["node-00", "node-01", "node-02", "node-03"]


def test_an_absent_limit_is_the_default() -> None:
    """For the GPU Operator an absent maxUnavailable means all nodes; here it means a quarter."""
    pool = open_pool(upgrade={"max_parallel_upgrades": 0}, record=of_target(), base=8)
    assert len(granted_to(pool, *candidates(8))) == 2
