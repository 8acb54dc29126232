"""The wait shown for a node: its own, that of its queue, or an override."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import WaitCode
from libs.rollout.decision import Wait
from libs.rollout.outcomes import WaitTracker
from libs.rollout.pool.queues import CandidateQueue, QueueKey
from libs.rollout.wait_reasons import BlockReason
from tests.unit.rollout.builders import NEW, NOW

JOBS = Wait(code=WaitCode.JOBS, detail="a job", since=NOW)
STALE = Wait(code=WaitCode.STALE, detail="not proven lately", since=NOW)


def new_queue() -> CandidateQueue:
    return CandidateQueue(
        QueueKey(
            validates_only=False,
            is_recovery=False,
            costs_budget=True,
            already_failed=False,
            target=NEW,
        )
    )


def waiting(own: Wait = JOBS) -> WaitTracker:
    waits = WaitTracker()
    waits.put("n", own, None)
    assert waits.update("n", NOW) == own
    return waits


def test_a_wait_is_reported_once_and_dated_from_its_code() -> None:
    waits = waiting()
    other = replace(JOBS, detail="another job", since=NOW + 9)
    waits.put("n", other, None)
    assert waits.update("n", NOW + 9) is None
    assert dict(waits) == {"n": replace(other, since=NOW)}
    waits.put("n", replace(STALE, since=NOW + 20), None)
    assert waits.update("n", NOW + 20) == waits["n"] == replace(STALE, since=NOW + 20)


def test_a_remembered_wait_keeps_its_date_once() -> None:
    waits = WaitTracker()
    waits.remember("n", replace(JOBS, since=NOW - 60))
    waits.remember("n", replace(STALE, since=NOW - 5))
    waits.put("n", JOBS, None)
    assert waits.update("n", NOW) is None
    assert dict(waits) == {"n": replace(JOBS, since=NOW - 60)}


def test_a_hidden_wait_keeps_its_date() -> None:
    waits = waiting()
    waits.hide("n")
    assert (dict(waits), len(waits), "n" in waits) == ({}, 0, False)
    with pytest.raises(KeyError):
        waits["n"]
    waits.put("n", replace(JOBS, since=NOW + 9), None)
    assert waits.update("n", NOW + 9) is None
    assert dict(waits) == {"n": JOBS}


def test_a_queued_node_waits_for_the_block_of_its_queue() -> None:
    waits, queue = WaitTracker(), new_queue()
    waits.put("n", None, queue)
    assert (waits.update("n", NOW), dict(waits)) == (None, {})
    queue.set_block(BlockReason(WaitCode.BUDGET, "it is full"))
    sent = waits.update("n", NOW)
    assert sent is not None
    assert (sent.code, sent.detail) == (WaitCode.BUDGET, "it is full")
    queue.set_block(None)
    assert (waits.update("n", NOW), dict(waits)) == (None, {})
    waits.put("n", JOBS, queue)
    assert waits.update("n", NOW) == JOBS
    waits.put("n", None, None)
    assert (waits.update("n", NOW), dict(waits), waits.clear("n")) == (None, {}, True)
    assert not waits.clear("n")


def test_an_override_is_reported_when_its_code_differs() -> None:
    waits = waiting()
    assert waits.set_overrides({"n": replace(JOBS, detail="all of them")}) == set()
    assert waits["n"].detail == "all of them"
    assert waits.set_overrides({"n": STALE}) == {"n"}
    assert waits.set_overrides({}) == {"n"}
    waits.hide("n")
    assert waits.set_overrides({"n": JOBS}) == {"n"}
    assert waits.set_overrides({"n": JOBS, "new": JOBS}) == {"n", "new"}


def test_a_node_with_a_step_shows_no_wait() -> None:
    waits = waiting()
    later = replace(JOBS, since=NOW + 9)
    assert waits.wait_beside_step("n", later, NOW + 9) == JOBS
    assert dict(waits) == {}
    assert waits.wait_beside_step("n", None, NOW + 9) is None
    assert waits.codes == {}
    waits.put("n", later, None)
    assert waits.update("n", NOW + 9) == later


def test_a_forgotten_node_leaves_nothing() -> None:
    waits = waiting()
    waits.forget("n")
    waits.forget("n")
    assert (dict(waits), waits.codes) == ({}, {})
    assert waits.update("n", NOW) is None
