"""Queues of candidates, and their preflight rechecks."""

from libs.contracts.commands import PreflightCheck
from libs.contracts.node import Operation
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Candidate
from libs.rollout.pool.contribution import contribution_of
from libs.rollout.pool.queues import CandidateQueue, CandidateQueues, QueueKey
from libs.rollout.pool.tally import PoolTally
from libs.rollout.views.node import NodeView
from libs.rollout.wait_reasons import BlockReason
from tests.unit.rollout.allocate.builders import FINDING, candidate, checked
from tests.unit.rollout.builders import NEW, NOW, POOL, label_of, required


def test_a_queue_reports_a_change_only_when_the_block_code_changes() -> None:
    lot = QueueKey(
        validates_only=False, is_recovery=False, costs_budget=True, already_failed=False, target=NEW
    )
    queue, reason = CandidateQueue(lot), BlockReason(WaitCode.PAUSED, "the brake is Pause")
    assert not CandidateQueue(lot).set_block(None)
    assert queue.set_block(reason)
    wait = queue.wait(NOW)
    assert not queue.set_block(BlockReason(WaitCode.PAUSED, "the brake is Pause"))
    assert queue.wait(NOW) is wait
    assert not queue.set_block(BlockReason(WaitCode.PAUSED, "autoUpgrade is off"))
    assert queue.wait(NOW).detail == "autoUpgrade is off"
    assert queue.set_block(BlockReason(WaitCode.HALTED, "it is halted"))
    assert queue.set_block(None)


def put_candidate(queues: CandidateQueues, given: NodeView, *, outside: bool = False) -> None:
    check = PreflightCheck(label=label_of(NEW))
    result = Candidate(
        operation=Operation.UPGRADE, target=NEW, label=label_of(NEW), outside=outside, check=check
    )
    tally = PoolTally()
    tally.put(contribution_of(given, None, POOL, NOW))
    queues.put(given, result, tally, before=None, now=NOW)


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
