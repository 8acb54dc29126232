"""Queues of candidates, and their preflight rechecks."""

from msgspec.structs import replace

from libs.contracts.commands import PreflightCheck
from libs.contracts.facts import LoadedDriver
from libs.contracts.node import NodeRecord, Operation
from libs.contracts.reports import PodUse, Usage
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Candidate
from libs.rollout.pool.contribution import contribution_of
from libs.rollout.pool.queues import CandidateQueue, CandidateQueues, QueueKey, rank
from libs.rollout.pool.tally import PoolTally
from libs.rollout.views.node import NodeView
from libs.rollout.wait_reasons import BlockReason
from tests.unit.rollout.allocate.builders import FINDING, candidate, checked
from tests.unit.rollout.builders import NEW, NOW, POOL, label_of, node, record, required


def test_a_queue_reports_a_change_only_when_the_block_code_changes() -> None:
    key = QueueKey(
        validates_only=False,
        by_hand=False,
        is_recovery=False,
        costs_budget=True,
        already_failed=False,
        target=NEW,
    )
    queue, reason = CandidateQueue(key), BlockReason(WaitCode.PAUSED, "the brake is Pause")
    assert not CandidateQueue(key).set_block(None)
    assert queue.set_block(reason)
    wait = queue.wait(NOW)
    assert not queue.set_block(BlockReason(WaitCode.PAUSED, "the brake is Pause"))
    assert queue.wait(NOW) is wait
    assert not queue.set_block(BlockReason(WaitCode.PAUSED, "autoUpgrade is off"))
    assert queue.wait(NOW).detail == "autoUpgrade is off"
    assert queue.set_block(BlockReason(WaitCode.HALTED, "it is halted"))
    assert queue.set_block(None)


def put_candidate(queues: CandidateQueues, view: NodeView, *, outside: bool = False) -> None:
    check = PreflightCheck(label=label_of(NEW))
    result = Candidate(
        operation=Operation.UPGRADE, target=NEW, label=label_of(NEW), outside=outside, check=check
    )
    tally = PoolTally()
    tally.put(contribution_of(view, None, POOL, NOW))
    queues.enqueue(view, result, tally, before=None, now=NOW)


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
        names_by_recovery = {
            key.is_recovery: queue.ranking.names() for key, queue in queues.queues.items()
        }
        assert names_by_recovery == {outside: ["n"]}
    queues.drop("n")
    assert (queues.queues, queues.candidates) == ({}, {})


# The ranking of candidates (docs/states.md#d-4), and its data structures.


def unchecked(*, outside: bool = False) -> Candidate:
    return Candidate(operation=Operation.UPGRADE, target="t", label="l", outside=outside)


def uses(name: str, *pods: int) -> NodeView:
    use = Usage(pods=tuple(PodUse(pod_uid=f"{name}-{n}", gpus=gpus) for n, gpus in enumerate(pods)))
    return node(name, usage=use)


def runs(name: str, version: str) -> NodeView:
    return node(name, loaded=LoadedDriver(version=version))


def before(first: NodeView, second: NodeView) -> bool:
    return rank(first, unchecked()) < rank(second, unchecked())


def test_the_ranking_order() -> None:
    released: NodeRecord = record("b", back_off_seconds=600.0)
    in_order = [
        (uses("z", 8, 8, 8), unchecked(outside=True)),
        (runs("y", "550.9.1"), unchecked()),
        (runs("x", "550.10.1"), unchecked()),
        (node("b1", loaded=LoadedDriver(version="580.1")), unchecked()),
        (node("b2", loaded=LoadedDriver(version="580.1")), unchecked()),
        (node("w", usage=Usage(host_processes=1)), unchecked()),
        (uses("v", 8), unchecked()),
        (uses("u", 1, 1), unchecked()),
        (replace(node("b"), record=released), unchecked()),
        (node("a", upgrade_last=True), unchecked(outside=True)),
        (node("a", upgrade_last=True), unchecked()),
    ]
    ranks = [rank(*item) for item in in_order]
    assert ranks == sorted(ranks)


def test_unknown_usage_ranks_as_busy() -> None:
    assert before(node("z"), node("a", usage=None))


def test_a_finished_back_off_does_not_lower_the_rank() -> None:
    again: NodeRecord = record("a", back_off_seconds=0.0)
    assert before(replace(node("a"), record=again), node("b"))


def test_any_reported_version_has_a_rank() -> None:
    for version in ("", "²", "9" * 5_000, "580." + "1" * 5_000):
        assert before(runs("a", version), runs("b", "580.1"))
