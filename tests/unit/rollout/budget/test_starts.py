"""Which starts the budget allows (docs/states.md#budget): a case for each sentence."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import NodeRecord
from libs.contracts.rollout import RolloutPhase
from libs.contracts.waits import WaitCode
from libs.rollout.decide import decide
from libs.rollout.pool.contribution import UNREPORTED
from libs.rollout.views.node import NodeView
from tests.unit.rollout.allocate.builders import (
    candidate,
    candidates,
    checked,
    code_of,
    decided,
    entry,
    granted_to,
    of_target,
    open_pool,
    written,
)
from tests.unit.rollout.builders import (
    NOW,
    done,
    failed,
    fleet,
    in_flight_node,
    instant,
    node,
    with_record,
    without_driver,
)

ALL = {"max_parallel_upgrades": 0}


def recovered(name: str) -> NodeView:
    node = failed(name)
    return with_record(node, revalidated="")


def test_base_and_limit_are_set_at_the_first_grant() -> None:
    status = written(decided(open_pool(upgrade=ALL, record=of_target()), *candidates(10)))
    assert (status.base, status.counts.limit) == (10, 3)


def test_the_base_is_set_anew_when_a_complete_rollout_reopens() -> None:
    pool = open_pool(upgrade=ALL, record=of_target(), base=100, phase=RolloutPhase.COMPLETE)
    assert written(decided(pool, *candidates(10))).base == 10
    nodes = [*candidates(1), *(done(f"done-{n}") for n in range(9))]
    paused = replace(pool, errors=("no such image",))
    status = written(decided(paused, *nodes))
    assert (status.base, status.phase) == (0, RolloutPhase.PROVEN)


def test_joined_nodes_raise_the_limit_only_when_done() -> None:
    bare = [checked(node(f"bare-{n}")) for n in range(10)]
    pool = open_pool(upgrade=ALL, record=of_target(), base=10)
    assert decided(pool, *candidates(10), *bare).budgets[pool.key].limit == 3
    done_nodes = [done(f"done-{n}") for n in range(10)]
    status = written(decided(pool, *candidates(10), *done_nodes))
    assert (status.base, status.counts.limit) == (20, 3)


def test_an_unavailable_node_costs_only_a_parallel_slot() -> None:
    nodes = [
        candidate("cordoned", cordoned=True),
        checked(replace(without_driver(candidate("gate-shut")), revision="51")),
    ]
    closed_pool = open_pool(upgrade={**ALL, "max_unavailable": 0}, record=of_target(), base=3)
    assert granted_to(closed_pool, *nodes, candidate("works")) == ["cordoned", "gate-shut"]
    pool_view = open_pool(
        upgrade={"max_parallel_upgrades": 1, "max_unavailable": 0}, record=of_target(), base=3
    )
    assert len(granted_to(pool_view, *nodes)) == 1


def test_a_fleet_with_a_new_kernel_is_not_locked() -> None:
    """All gates are shut: more nodes are unavailable than may be, and no start adds one."""
    nodes = [
        checked(without_driver(done(f"node-{n}", kernel="6.8.0-99")), asked=1.0, answered=None)
        for n in range(8)
    ]
    pool = open_pool(upgrade={"max_parallel_upgrades": 2}, record=of_target(), base=8)
    decision = decided(pool, *nodes)
    assert len(decision.budgets[pool.key].unavailable) == 8
    assert decision.budgets[pool.key].limit == 2
    stamped = [
        checked(replace(without_driver(candidate(f"node-{n}")), kernel="6.8.0-99"))
        for n in range(8)
    ]
    assert len(granted_to(pool, *stamped)) == 2


def test_a_node_without_a_report_since_its_boot_may_be_available_or_not() -> None:
    """It uses a place, since a boot unloads the driver; its own start uses one as well."""
    booted = replace(without_driver(candidate("booted")), modules_reported=False)

    def granted(limit: int) -> list[str]:
        pool = open_pool(upgrade={**ALL, "max_unavailable": limit}, record=of_target(), base=3)
        return granted_to(pool, checked(booted), candidate("works"))

    assert granted(1) == []
    assert len(granted(2)) == 1
    pool = open_pool(upgrade={**ALL, "max_unavailable": 1}, record=of_target(), base=3)
    decision = decided(pool, checked(booted), candidate("works"))
    assert code_of(decision, "works") is WaitCode.BUDGET
    assert decision.budgets[pool.key].unavailable == {"booted": UNREPORTED}


def test_a_node_that_is_not_ready_does_not_start() -> None:
    pool = open_pool(upgrade=ALL, record=of_target(), base=2)
    decision = decided(pool, candidate("node-1", ready=False))
    assert code_of(decision, "node-1") is WaitCode.NOT_READY


def test_a_node_uncordoned_midway_stays_unavailable() -> None:
    midway = in_flight_node("wait-for-jobs-required", "midway", cordoned=False)
    pool = open_pool(
        upgrade={**ALL, "max_unavailable": 1},
        record=of_target(),
        base=2,
        in_flight={midway.uid: entry(midway, token=7)},
    )
    decision = decided(pool, midway, candidate("node-1"))
    assert code_of(decision, "node-1") is WaitCode.BUDGET
    assert decision.budgets[pool.key].unavailable == {"midway": "in an upgrade"}


def test_a_first_bring_up_costs_only_a_parallel_slot() -> None:
    bare = [checked(node(f"bare-{n}")) for n in range(4)]
    closed_pool = open_pool(upgrade={**ALL, "max_unavailable": 0}, record=of_target(), base=4)
    assert len(granted_to(closed_pool, *bare)) == 4
    two = open_pool(
        upgrade={"max_parallel_upgrades": 2, "max_unavailable": 0}, record=of_target(), base=4
    )
    assert len(granted_to(two, *bare)) == 2


@pytest.mark.parametrize(
    "taken",
    [
        in_flight_node("wait-for-jobs-required", "taken"),
        in_flight_node("validation-required", "taken"),
    ],
)
def test_a_node_in_flight_takes_a_parallel_slot(taken: NodeView) -> None:
    pool = open_pool(
        upgrade={"max_parallel_upgrades": 1, "max_unavailable": "100%"},
        record=of_target(),
        base=2,
        in_flight={taken.uid: entry(taken, token=7)},
    )
    decision = decided(pool, taken, candidate("node-1"))
    assert code_of(decision, "node-1") is WaitCode.BUDGET
    assert "taken" in decision.waits["node-1"].detail
    assert decision.budgets[pool.key].parallel == 1


def test_a_failed_node_frees_its_parallel_slot_and_stays_unavailable() -> None:
    broken = failed("broken")
    pool = open_pool(
        upgrade={"max_parallel_upgrades": 1, "max_unavailable": 2},
        record=of_target(threshold=2, failed=(broken.uid,)),
        base=3,
    )
    pool = replace(pool, strategy=replace(pool.strategy, retries=0))
    assert granted_to(pool, broken, candidate("node-1")) == ["node-1"]
    narrow_pool = replace(pool, upgrade=replace(pool.upgrade, max_unavailable=1))
    assert granted_to(narrow_pool, broken, candidate("node-1")) == []


def test_a_validation_needs_neither_budget_nor_slot() -> None:
    running = in_flight_node("pod-deletion-required", "running")
    pool = open_pool(
        upgrade={"max_parallel_upgrades": 1, "max_unavailable": 0},
        record=of_target(proven=False),
        base=2,
        in_flight={running.uid: entry(running, token=7)},
    )
    decision = decided(pool, running, recovered("again"), candidate("node-1"))
    (write,) = decision.rollouts
    assert write.granted == ("again",)
    assert write.status.in_flight["uid-again"].outside
    assert decision.budgets[pool.key].parallel == 1


def test_an_unused_grant_counts_for_the_next() -> None:
    begins = candidate("begins")
    pool = open_pool(
        upgrade={**ALL, "max_unavailable": 1},
        record=of_target(),
        base=2,
        in_flight={begins.uid: entry(begins)},
    )
    decision = decided(pool, begins, candidate("node-1"))
    assert code_of(decision, "node-1") is WaitCode.BUDGET
    assert "begins" in decision.steps


def test_grants_begin_only_as_far_as_the_current_budget_allows() -> None:
    nodes = candidates(3)
    flights = {view.uid: entry(view, since=NOW - 5) for view in nodes}
    pool = open_pool(
        upgrade={**ALL, "max_unavailable": 3}, record=of_target(), base=5, in_flight=flights
    )
    not_ready = done("away", ready=False)
    decision = decided(pool, *nodes, done("well"), not_ready)
    assert sorted(decision.steps) == ["node-00", "node-01"]
    assert code_of(decision, "node-02") is WaitCode.BUDGET
    pending = replace(nodes[2], write_pending=True)
    assert sorted(decided(pool, *nodes[:2], pending, not_ready).steps) == ["node-00"]


def test_pools_have_separate_budgets() -> None:
    pool_view = open_pool(upgrade={**ALL, "max_unavailable": 1}, record=of_target(), base=1)
    two = replace(pool_view, key="nvidiadriver-two", uid="other")
    nodes = [candidate("in-one"), candidate("in-two", pool="nvidiadriver-two")]
    record = nodes[1].record
    assert isinstance(record, NodeRecord)
    nodes[1] = replace(nodes[1], record=replace(record, pool="nvidiadriver-two"))
    decision = decide(fleet([pool_view, two], *nodes), instant())
    assert {write.pool: write.granted for write in decision.rollouts} == {
        pool_view.key: ("in-one",),
        two.key: ("in-two",),
    }


def test_a_removal_costs_budget_and_counts_for_no_target() -> None:
    leaves = checked(done("leaves", excluded=True))
    assert leaves.preflight is not None
    leaves = replace(leaves, preflight=replace(leaves.preflight, label=""))
    halted = of_target(proven=False, failed=("gone",))
    pool = open_pool(upgrade=ALL, record=halted, base=2)
    assert granted_to(pool, leaves) == ["leaves"]
    closed_pool = replace(pool, upgrade=replace(pool.upgrade, max_unavailable=0))
    assert granted_to(closed_pool, leaves) == []
    status = written(decided(pool, leaves))
    assert [item.target for item in status.in_flight.values()] == [""]
