"""Queues of candidates, and their preflight rechecks."""

import pytest
from msgspec.structs import replace

from libs.contracts.commands import PreflightCheck
from libs.contracts.facts import LoadedDriver
from libs.contracts.node import NodeRecord, Operation, UpgradeState
from libs.contracts.rollout import TargetRecord
from libs.contracts.waits import WaitCode
from libs.rollout.allocate.allocation import RECHECKS_AT_ONCE
from libs.rollout.allocate.queues import CandidateQueue, CandidateQueues, QueueKey
from libs.rollout.decision import Candidate
from libs.rollout.reconcile.block_reasons import block_reason
from libs.rollout.reconcile.contribution import contribution_of
from libs.rollout.reconcile.pool_tally import PoolTally
from libs.rollout.views.machine import PreflightQuery
from libs.rollout.views.node import NodeView
from tests.unit.rollout.allocate.builders import (
    FINDING,
    asked_of,
    candidate,
    checked,
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
    POOL,
    TOKEN,
    done,
    evidence,
    failed,
    in_flight_node,
    label_of,
    node,
    required,
)


def test_an_answer_at_the_moment_of_the_question_counts() -> None:
    asked = checked(required("n0"), asked=NOW - 2, answered=NOW - 2)
    assert granted_to(open_pool(record=of_target()), asked) == ["n0"]


def test_a_bare_node_starts_although_nothing_may_be_unavailable() -> None:
    none = open_pool(record=of_target(), upgrade={"max_unavailable": 0})
    assert granted_to(none, checked(node("bare")), candidate("n0")) == ["bare"]


def test_a_pending_write_keeps_the_slot_of_its_node() -> None:
    one = open_pool(record=of_target(), upgrade={"max_parallel_upgrades": 1})
    assert granted_to(one, candidate("n0"), candidate("n1")) == ["n0"]
    assert granted_to(one, candidate("n0", write_pending=True), candidate("n1")) == []


def test_no_preflight_query_while_a_write_is_pending() -> None:
    one = open_pool(record=of_target(), upgrade={"max_parallel_upgrades": 1})
    asleep = replace(required("n1"), write_pending=True)
    decision = decided(one, candidate("n0"), asleep, required("n2"))
    assert list(asked_of(decision)) == ["n2"]


ONE = {"max_parallel_upgrades": 1, "max_unavailable": "100%"}
THIRD = "target-third"


@pytest.mark.parametrize("outside", [False, True])
def test_a_withdrawn_entry_frees_one_slot_in_the_same_write(outside: bool) -> None:
    back = candidate("back")
    in_flight = {back.uid: entry(back, target=THIRD, outside=outside)}
    pool = open_pool(upgrade=ONE, record=of_target(), in_flight=in_flight)
    assert granted_to(pool, back, candidate("n1"), candidate("n2")) == ["n1"]


def test_a_withdrawn_entry_makes_no_node_unavailable() -> None:
    back, kept = candidate("back"), candidate("kept")
    one = {"max_parallel_upgrades": 0, "max_unavailable": 1}
    for waits, target, starts in ((back, THIRD, ["n1"]), (kept, NEW, list[str]())):
        in_flight = {waits.uid: entry(waits, target=target)}
        pool = open_pool(upgrade=one, record=of_target(), in_flight=in_flight)
        assert granted_to(pool, waits, candidate("n1"), candidate("n2")) == starts


def starts_beside_a_retargeted_node(*, outside: bool) -> list[str]:
    """Return the nodes granted on an unproven target while a node in flight is retargeted to it."""
    busy = in_flight_node(name="busy", record={"outside": outside})
    wide = {"max_parallel_upgrades": 0, "max_unavailable": "100%"}
    in_flight = {busy.uid: entry(busy, token=TOKEN, outside=outside)}
    made = open_pool(upgrade=wide, base=9, in_flight=in_flight, targets=(OLD, NEW, THIRD))
    return granted_to(replace(made, target=THIRD), busy, checked(required("n1"), target=THIRD))


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
    said = PreflightQuery(label="", asked_at=NOW - 2, answered_at=NOW - 1)
    nodes = [done(name, OLD, excluded=True, preflight=said) for name in ("n0", "n1")]
    pool = open_pool(
        upgrade={"max_parallel_upgrades": 0, "max_unavailable": "100%"},
        record=TargetRecord(threshold=1),
    )
    assert granted_to(pool, *nodes) == ["n0", "n1"]


def test_a_validation_takes_no_slot_of_any_kind() -> None:
    validated = required("n0", NEW)
    assert isinstance(validated.record, NodeRecord)
    stale = replace(validated.record, evidence=evidence(boot_id="boot-of-before", node="n0"))
    healed = required_again(failed("n1", OLD))
    pool = open_pool(upgrade=ONE, record=of_target())
    nodes = (first(replace(validated, record=stale)), healed, candidate("n2"))
    assert granted_to(pool, *nodes) == ["n0", "n1", "n2"]


def test_a_retry_takes_no_proof_slot_from_later_nodes() -> None:
    again = first(required_again(failed("n0")))
    pool = open_pool(
        upgrade={"max_parallel_upgrades": 0, "max_unavailable": "100%"},
        record=TargetRecord(threshold=2, failed=(again.uid,)),
        base=9,
    )
    assert granted_to(pool, again, candidate("n1"), candidate("n2")) == ["n0", "n1"]


def test_a_pending_recheck_counts_against_the_recheck_limit() -> None:
    blocked = [
        checked(required(f"n{n:02}"), FINDING, asked=NOW - 70 - 20 + n, answered=NOW - 70 - 20 + n)
        for n in range(RECHECKS_AT_ONCE + 4)
    ]
    pool = open_pool(record=of_target(), upgrade={"max_parallel_upgrades": 1})
    first = [one.name for one in blocked[:RECHECKS_AT_ONCE]]
    assert list(asked_of(decided(pool, *blocked))) == first
    *others, last = blocked
    decision = decided(pool, *others, replace(last, write_pending=True))
    assert list(asked_of(decision)) == first[:-1]


def test_a_queue_reports_a_change_only_when_the_block_code_changes() -> None:
    lot = QueueKey(
        validates_only=False, is_recovery=False, costs_budget=True, already_failed=False, target=NEW
    )
    queue, reason = CandidateQueue(lot), block_reason(WaitCode.PAUSED, "the brake is Pause")
    assert not CandidateQueue(lot).set_block(None)
    assert queue.set_block(reason)
    said = queue.wait(NOW)
    assert not queue.set_block(block_reason(WaitCode.PAUSED, "the brake is Pause"))
    assert queue.wait(NOW) is said
    assert not queue.set_block(block_reason(WaitCode.PAUSED, "autoUpgrade is off"))
    assert queue.wait(NOW).detail == "autoUpgrade is off"
    assert queue.set_block(block_reason(WaitCode.HALTED, "it is halted"))
    assert queue.set_block(None)


def put_candidate(queues: CandidateQueues, given: NodeView, *, outside: bool = False) -> None:
    check = PreflightCheck(label=label_of(NEW))
    made = Candidate(
        operation=Operation.UPGRADE,
        target=NEW,
        label=label_of(NEW),
        outside=outside,
        check=check,
    )
    tally = PoolTally()
    borne = contribution_of(given, None, POOL, NOW)
    tally.put(borne)
    queues.put(given, made, borne, tally, before=None, now=NOW)


def test_a_recheck_ends_when_the_findings_are_gone() -> None:
    queues = CandidateQueues()
    for at in (NOW - 70, NOW - 80):
        put_candidate(queues, checked(required("n"), FINDING, asked=at, answered=at))
        assert list(queues.due) == [(at + 60, "n")]
    put_candidate(queues, checked(required("n", write_pending=True), FINDING))
    assert (list(queues.blocked), queues.rechecking, list(queues.due)) == (["n"], {"n"}, [])
    put_candidate(queues, candidate("n"))
    assert (queues.blocked, queues.rechecking, list(queues.due)) == ({}, set(), [])
    assert [queue.ranking.names() for queue in queues.queues.values()] == [["n"]]


def test_a_candidate_moves_to_the_queue_of_its_current_limits() -> None:
    queues = CandidateQueues()
    for outside in (False, True, True, False):
        put_candidate(queues, candidate("n"), outside=outside)
        lines = {lot.is_recovery: queue.ranking.names() for lot, queue in queues.queues.items()}
        assert lines == {outside: ["n"]}
    queues.drop("n")
    assert (queues.queues, queues.candidates) == ({}, {})
