"""Which nodes are unavailable, and how many may be (docs/states.md#budget): a case for each row."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.facts import Gate
from libs.contracts.node import LeaseOwner, NodeLease, Operation, UpgradeState
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.rollout.pool.contribution import UNREPORTED, counts_for_base, unavailable_reason
from libs.rollout.pool.evaluation import unavailable_limit
from libs.rollout.views.node import MalformedAnnotation, NodeView
from tests.unit.rollout.allocate.builders import (
    candidate,
    candidates,
    granted_to,
    of_target,
    open_pool,
)
from tests.unit.rollout.builders import (
    done,
    evidence,
    failed,
    in_flight_node,
    lease,
    node,
    record,
    without_driver,
)


def bare(label: str = "", **changes: Any) -> NodeView:
    """Return a node without a loaded driver."""
    return without_driver(node(driver_label=label, record=record(**changes)))


def reason(node: NodeView) -> str:
    return unavailable_reason(node, node.current_record)


WAITS = UpgradeState.WAIT_FOR_JOBS_REQUIRED
REPAIR = NodeLease(node_uid="uid-node-1", owner=LeaseOwner.REPAIR, token=1, since=0.0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (done(), ""),
        (done(cordoned=True), "cordoned"),
        (done(ready=False), "not ready"),
        (in_flight_node(WAITS), "in an upgrade"),
        (in_flight_node(WAITS, cordoned=False), "in an upgrade"),
        (
            done(lease=REPAIR),
            "leased",
        ),
        (done(lease=MalformedAnnotation("no JSON")), "leased"),
        (
            node(lease=lease(owner=LeaseOwner.HUMAN), record=record(operation=Operation.BRING_UP)),
            "leased",
        ),
        (
            node(lease=lease(owner=LeaseOwner.HUMAN), record=record(operation=Operation.VALIDATE)),
            "leased",
        ),
        (done(lease=lease("node-1", node_uid="of another node")), ""),
        (failed(), "failed"),
        (failed(cordoned=False), "failed"),
        (failed(record=None), "failed"),
        (failed(state=""), "failed"),
        (without_driver(done()), "without a driver"),
        (replace(without_driver(done()), gate=Gate(waiting_pod_uid="new")), "without a driver"),
        (replace(without_driver(done()), driver_label=""), "without a driver"),
        (replace(without_driver(done()), modules_reported=False), UNREPORTED),
        (replace(bare(evidence=None), modules_reported=False), ""),
        (bare(evidence=None), ""),
        (bare(evidence=evidence()), "without a driver"),
        (bare("label", evidence=None), "without a driver"),
        (bare("label", operation=Operation.BRING_UP), "without a driver"),
        (replace(bare("label", operation=Operation.BRING_UP), lease=lease()), ""),
        (replace(bare("label", operation=Operation.VALIDATE), lease=lease()), "without a driver"),
        (replace(bare("label"), lease=lease(node_uid="another")), "without a driver"),
        (node(), ""),
    ],
)
def test_why_a_node_is_unavailable(given: NodeView, expected: str) -> None:
    assert reason(given) == expected


@pytest.mark.parametrize("operation", [Operation.BRING_UP, Operation.VALIDATE])
def test_a_first_bring_up_and_a_validation_cost_nothing(operation: Operation) -> None:
    fresh = node(lease=lease(), record=record(operation=operation, started=True))
    assert reason(fresh) == ""
    assert reason(replace(fresh, cordoned=True)) == "cordoned"


def test_any_other_operation_costs_during_its_lease() -> None:
    for operation in set(Operation) - {Operation.BRING_UP, Operation.VALIDATE}:
        leased = node(lease=lease(), record=record(operation=operation))
        assert reason(leased) == "in an upgrade", operation


@pytest.mark.parametrize(
    ("most", "base", "present", "counted", "expected"),
    [
        ("25%", 10, 10, 10, 3),  # rounded up
        ("1%", 3, 3, 3, 1),
        ("25%", 100, 10, 10, 3),  # of those that are there
        ("25%", 10, 100, 100, 3),  # a node that joined counts later
        ("25%", 0, 10, 10, 3),  # no base yet
        ("25%", 0, 0, 0, 1),  # never less than 1
        ("100%", 8, 8, 8, 8),
        ("100%", 8, 1, 2, 2),  # also a node that is leaving
        ("99%", 8, 1, 2, 1),
        ("100%", 0, 0, 0, 1),
        (0, 10, 10, 10, 0),
        ("0", 10, 10, 10, 0),
        ("0%", 10, 10, 10, 0),
        (20, 5, 5, 5, 20),  # a number is no part of anything
        (2, 10, 10, 10, 2),
        (100, 200, 200, 200, 100),
        ("100", 200, 200, 200, 100),
    ],
)
def test_the_limit(most: int | str, base: int, present: int, counted: int, expected: int) -> None:
    upgrade = UpgradePolicy(max_unavailable=most)
    assert unavailable_limit(upgrade, base=base, present=present, counted=counted) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (done(), True),
        (done(state="upgrade-required"), True),
        (in_flight_node(WAITS), True),
        (node(), False),
        (node(record=record(operation=Operation.BRING_UP, started=True), lease=lease()), False),
        (node(driver_label="x", record=record(operation=Operation.BRING_UP)), False),
        (node(driver_label="x", record=record(operation=Operation.TAKE_OVER)), False),
        (node(driver_label="x"), True),
        (node(state="upgrade-done"), True),
        (node(record=record(evidence=None)), False),
        (node(record=record(evidence=evidence())), True),
    ],
)
def test_a_joined_node_enters_the_base_when_it_is_done(given: NodeView, expected: bool) -> None:
    assert counts_for_base(given, given.current_record) is expected


# The budget table of the GPU Operator, on a proven target.


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
def test_the_number_of_starts(
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
