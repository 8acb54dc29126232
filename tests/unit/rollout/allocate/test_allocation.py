"""The grants of one round: one write for all, in order, with new tokens."""

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Order
from libs.contracts.facts import LoadedDriver
from libs.contracts.node import NodeRecord, UpgradeState
from libs.contracts.numbers import LIMIT
from libs.contracts.rollout import InFlight, TargetRecord
from libs.contracts.waits import ITSELF, WaitCode
from libs.rollout.pool.allocation import next_token
from libs.rollout.views.machine import PreflightQuery
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
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
)
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    TOKEN,
    command,
    component,
    done,
    evidence,
    failed,
    in_flight_node,
    lease,
    node,
    required,
)

ALL = {"max_parallel_upgrades": 0, "max_unavailable": "100%"}


def test_all_starts_of_a_round_are_one_write() -> None:
    decision = decided(open_pool(upgrade=ALL, record=of_target(), base=3), *candidates(3))
    (write,) = decision.rollouts
    assert write.granted == ("node-00", "node-01", "node-02")
    assert write.status.in_flight == {
        f"uid-node-0{n}": InFlight(node=f"node-0{n}", token=TOKEN + 1, target=NEW, since=NOW)
        for n in range(3)
    }
    assert "3" in write.because
    assert decision.steps == {}
    assert {wait.code for wait in decision.waits.values()} == {WaitCode.BUDGET}


def test_the_write_of_a_start_counts_the_nodes_that_it_makes_unavailable() -> None:
    nodes = [candidate("begun-soon"), candidate("cordoned", cordoned=True), candidate("starts")]
    granted = {nodes[0].uid: entry(nodes[0])}
    pool_view = open_pool(upgrade=ALL, record=of_target(), base=3, in_flight=granted)
    (write,) = decided(pool_view, *nodes).rollouts
    assert write.granted == ("cordoned", "starts")
    assert (write.status.counts.in_flight, write.status.counts.unavailable) == (3, 3)


def test_a_node_that_starts_is_in_flight_and_no_longer_waiting() -> None:
    nodes = [candidate("begun-soon"), candidate("starts"), candidate("stays"), done("done")]
    granted = {nodes[0].uid: entry(nodes[0])}
    upgrade = {"max_parallel_upgrades": 2, "max_unavailable": "100%"}
    pool_view = open_pool(upgrade=upgrade, record=of_target(), base=4, in_flight=granted)
    (write,) = decided(pool_view, *nodes).rollouts
    assert write.granted == ("starts",)
    counts = write.status.counts
    assert (counts.total, counts.done, counts.in_flight, counts.waiting) == (4, 1, 2, 1)


def test_grants_go_by_rank_across_queues() -> None:
    """The second node is cordoned already, which puts it into another queue."""
    nodes = [candidate("a"), candidate("b", cordoned=True), candidate("c")]
    pool_view = open_pool(upgrade={"max_parallel_upgrades": 2}, record=of_target(), base=3)
    assert decided(pool_view, *nodes).rollouts[0].granted == ("b",)
    wide_pool = open_pool(
        upgrade={"max_parallel_upgrades": 2, "max_unavailable": "100%"}, record=of_target(), base=3
    )
    assert decided(wide_pool, *nodes).rollouts[0].granted == ("a", "b")


def test_a_blocked_queue_does_not_block_the_next() -> None:
    nodes = [candidate("a"), candidate("b", cordoned=True)]
    closed_pool = open_pool(
        upgrade={"max_parallel_upgrades": 0, "max_unavailable": 1}, record=of_target(), base=2
    )
    decision = decided(closed_pool, *nodes)
    assert decision.rollouts[0].granted == ("b",)
    assert code_of(decision, "a") is WaitCode.BUDGET


def test_the_next_token_exceeds_all_known_tokens() -> None:
    assert next_token(node("n")) == 1
    assert next_token(required("n")) == TOKEN + 1
    assert next_token(node("n", lease=lease("n", token=30))) == 31
    last_beat = component(highest_order=Order(40, 2))
    assert next_token(node("n", components={"driver": last_beat})) == 41
    part = component(command(Idle(), node="n", order=(50, 1)), highest_order=Order(0, 0))
    assert next_token(node("n", components={"driver": part})) == 51
    of_another = component(command(Idle(), node="other", order=(60, 1)), highest_order=Order(0, 0))
    assert next_token(node("n", components={"driver": of_another})) == 1
    at_the_limit = component(highest_order=Order(LIMIT, 1))
    assert next_token(node("n", components={"driver": at_the_limit})) == 1


def test_nodes_of_a_queue_share_one_wait() -> None:
    closed_pool = open_pool(upgrade={**ALL, "max_unavailable": 0}, record=of_target(), base=3)
    waits = decided(closed_pool, *candidates(50)).waits
    assert len({id(wait) for wait in waits.values()}) == 1
    assert "maxUnavailable is 0" in waits["node-00"].detail
    assert waits["node-00"].who != ITSELF


def test_a_wait_dates_from_the_change_of_its_code() -> None:
    closed_pool = open_pool(upgrade={**ALL, "max_unavailable": 0}, record=of_target(), base=3)
    first = decided(closed_pool, candidate("node-1")).waits["node-1"]
    before = replace(first, since=NOW - 500, detail="what it was then")
    same_code = decided(closed_pool, candidate("node-1", last_wait=before)).waits["node-1"]
    assert same_code == replace(first, since=NOW - 500)
    other = replace(before, code=WaitCode.PROOF)
    assert decided(closed_pool, candidate("node-1", last_wait=other)).waits["node-1"].since == NOW


def test_nodes_that_use_the_budget_are_named() -> None:
    not_ready = [checked(node(f"away-{n}", ready=False)) for n in range(5)]
    pool = open_pool(upgrade={**ALL, "max_unavailable": 2}, record=of_target(), base=9)
    detail = decided(pool, candidate("node-1"), *not_ready).waits["node-1"].detail
    assert {"2", "5"} <= set(detail.split())
    assert "away-0 (not ready), away-1 (not ready), away-2 (not ready) and 2 more" in detail


def proving_pool(count: int, **changes: object) -> tuple[PoolView, list[NodeView]]:
    nodes = [in_flight_node(name=f"busy-{n}") for n in range(count)]
    flights = {
        view.uid: entry(view, token=TOKEN, since=NOW - 90 + n) for n, view in enumerate(nodes)
    }
    result = TargetRecord(threshold=3, **changes)  # type: ignore[arg-type]
    return open_pool(upgrade=ALL, record=result, base=9, in_flight=flights), nodes


@pytest.mark.parametrize(
    ("count", "named"), [(3, "busy-0, busy-1, busy-2"), (4, "busy-0, busy-1, busy-2 and 1 more")]
)
def test_nodes_in_the_proof_slots_are_named(count: int, named: str) -> None:
    pool, nodes = proving_pool(count)
    wait = decided(pool, *nodes, candidate("node-1")).waits["node-1"]
    assert f"target {NEW}" in wait.detail
    assert "validated on 0 of 3 nodes; " in wait.detail
    assert wait.detail.endswith(f" {named}")
    assert wait.who == f"{ITSELF}; an administrator, if {named} cannot go on"


def test_the_number_of_failures_is_reported() -> None:
    pool, nodes = proving_pool(1, failed=("a", "b"))
    detail = decided(pool, *nodes, candidate("node-1")).waits["node-1"].detail
    assert "on 0 of 3 nodes (2 failed, and would not count if validated later); " in detail


def test_a_node_that_is_tried_again_is_not_also_counted_as_failed() -> None:
    pool, nodes = proving_pool(3, failed=("uid-busy-1",))
    wait = decided(pool, *nodes, candidate("node-1")).waits["node-1"]
    progress = "validated on 0 of 3 nodes; in progress: busy-0, busy-1 (failed before), busy-2"
    assert wait.detail.endswith(progress)
    assert wait.who.endswith("if busy-0, busy-1, busy-2 cannot go on")


@pytest.mark.parametrize(
    ("upgrade", "record", "expected"),
    [
        ({}, TargetRecord(threshold=1), "in progress: "),
        ({"max_parallel_upgrades": 1}, of_target(), "maxParallelUpgrades (1) is reached by "),
        ({"max_unavailable": 1}, of_target(), "1 of at most 1 nodes (maxUnavailable) are"),
    ],
)
def test_starts_of_the_same_write_are_named_as_the_reason(
    upgrade: dict[str, int], record: TargetRecord, expected: str
) -> None:
    pool = open_pool(upgrade={**ALL, **upgrade}, record=record, base=9)
    decision = decided(pool, candidate("node-1"), candidate("node-2"))
    detail = decision.waits["node-2"].detail
    assert expected in detail
    assert detail.endswith(" node-1 (starting)")


def test_parallel_upgrades_are_named_with_their_target() -> None:
    pool, nodes = proving_pool(1, proven=True)
    view = replace(pool, upgrade=replace(pool.upgrade, max_parallel_upgrades=1))
    detail = decided(view, *nodes, candidate("node-1")).waits["node-1"].detail
    assert "maxParallelUpgrades" in detail
    assert detail.endswith(f" busy-0 ({NEW})")


def test_a_bare_node_starts_although_nothing_may_be_unavailable() -> None:
    closed_pool = open_pool(record=of_target(), upgrade={"max_unavailable": 0})
    assert granted_to(closed_pool, checked(node("bare")), candidate("n0")) == ["bare"]


def test_a_pending_write_keeps_the_slot_of_its_node() -> None:
    pool_view = open_pool(record=of_target(), upgrade={"max_parallel_upgrades": 1})
    assert granted_to(pool_view, candidate("n0"), candidate("n1")) == ["n0"]
    assert granted_to(pool_view, candidate("n0", write_pending=True), candidate("n1")) == []


ONE = {"max_parallel_upgrades": 1, "max_unavailable": "100%"}
THIRD = "target-third"


@pytest.mark.parametrize("outside", [False, True])
def test_a_withdrawn_entry_frees_one_slot_in_the_same_write(outside: bool) -> None:
    returning = candidate("back")
    in_flight = {returning.uid: entry(returning, target=THIRD, outside=outside)}
    pool = open_pool(upgrade=ONE, record=of_target(), in_flight=in_flight)
    assert granted_to(pool, returning, candidate("n1"), candidate("n2")) == ["n1"]


def test_a_withdrawn_entry_makes_no_node_unavailable() -> None:
    returning, kept = candidate("back"), candidate("kept")
    upgrade = {"max_parallel_upgrades": 0, "max_unavailable": 1}
    for waits, target, starts in ((returning, THIRD, ["n1"]), (kept, NEW, list[str]())):
        in_flight = {waits.uid: entry(waits, target=target)}
        pool = open_pool(upgrade=upgrade, record=of_target(), in_flight=in_flight)
        assert granted_to(pool, waits, candidate("n1"), candidate("n2")) == starts


def starts_beside_a_retargeted_node(*, outside: bool) -> list[str]:
    """Return the nodes granted on an unproven target while a node in flight is retargeted to it."""
    busy = in_flight_node(name="busy", record={"outside": outside})
    unlimited = {"max_parallel_upgrades": 0, "max_unavailable": "100%"}
    in_flight = {busy.uid: entry(busy, token=TOKEN, outside=outside)}
    pool_view = open_pool(upgrade=unlimited, base=9, in_flight=in_flight, targets=(OLD, NEW, THIRD))
    return granted_to(replace(pool_view, target=THIRD), busy, checked(required("n1"), target=THIRD))


def test_a_retargeted_node_takes_a_proof_slot() -> None:
    assert starts_beside_a_retargeted_node(outside=False) == []
    assert starts_beside_a_retargeted_node(outside=True) == ["n1"]


def required_again(broken: NodeView) -> NodeView:
    assert isinstance(broken.record, NodeRecord)
    state = UpgradeState.UPGRADE_REQUIRED
    record = replace(broken.record, state=state, asked=True)
    return checked(replace(broken, state=state, record=record))


def first(node: NodeView) -> NodeView:
    """Rank the node first: its driver is older than all others."""
    return replace(node, loaded=LoadedDriver(version="1"))


def test_removals_need_no_proof_slot() -> None:
    answer = PreflightQuery(label="", asked_at=NOW - 2, answered_at=NOW - 1)
    nodes = [done(name, OLD, excluded=True, preflight=answer) for name in ("n0", "n1")]
    pool = open_pool(
        upgrade={"max_parallel_upgrades": 0, "max_unavailable": "100%"},
        record=TargetRecord(threshold=1),
    )
    assert granted_to(pool, *nodes) == ["n0", "n1"]


def test_a_validation_takes_no_slot_of_any_kind() -> None:
    validated = required("n0", NEW)
    assert isinstance(validated.record, NodeRecord)
    stale = replace(validated.record, evidence=evidence(boot_id="boot-of-before", node="n0"))
    recovered = required_again(failed("n1", OLD))
    pool = open_pool(upgrade=ONE, record=of_target())
    nodes = (first(replace(validated, record=stale)), recovered, candidate("n2"))
    assert granted_to(pool, *nodes) == ["n0", "n1", "n2"]


def test_a_retry_takes_no_proof_slot_from_later_nodes() -> None:
    retry = first(required_again(failed("n0")))
    pool = open_pool(
        upgrade={"max_parallel_upgrades": 0, "max_unavailable": "100%"},
        record=TargetRecord(threshold=2, failed=(retry.uid,)),
        base=9,
    )
    assert granted_to(pool, retry, candidate("n1"), candidate("n2")) == ["n0", "n1"]
