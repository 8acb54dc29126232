"""Failed nodes, and how they recover (docs/states.md#d-1)."""

import pytest
from msgspec.structs import replace

from libs.contracts.facts import Gate
from libs.contracts.node import Operation
from libs.contracts.reports import Evidence
from libs.contracts.waits import FAILED_AND_HALTED, FAILED_AND_RELEASED
from libs.policy.kinds.strategy import StrategySpec
from libs.rollout.decision import Candidate, Step, Wait, WriteNode
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView, Readiness
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    apply_step,
    done,
    driver_pod,
    evidence,
    failed,
    idle_components,
    label_of,
    pool,
    step_at_rest,
    with_build,
    with_record,
)
from tests.unit.rollout.outcomes import candidate_of, only_action, step_of, wait_of

NO_RETRIES = replace(pool(), strategy=StrategySpec(retries=0))
HALTED = pool(constraints={"halted": {NEW: "1 of 1 allowed failures"}})
VALIDATE = Candidate(
    operation=Operation.VALIDATE, target=NEW, label=label_of(NEW), outside=True, by_hand=True
)


def unsynced(**changes: object) -> NodeView:
    return replace(failed(driver_pods=()), **changes)


def test_a_failed_node_waits_with_its_recorded_cause() -> None:
    outcome = wait_of(
        step_at_rest(failed(cause="busy: python (pod ml/train-0, pid 4711)"), NO_RETRIES)
    )
    assert (outcome.code, outcome.until, outcome.since) == ("failed", None, NOW)
    assert "busy: python (pod ml/train-0, pid 4711)" in outcome.detail
    assert "retry" in outcome.who


def test_a_failed_node_behind_a_shut_gate_cannot_recover_by_itself() -> None:
    outside = replace(driver_pod(), uid="pod-b", started=None, ready=False)
    waiting = unsynced(gate=Gate(waiting_pod_uid="pod-b"), driver_pods=(outside,))
    assert "gate" in wait_of(step_at_rest(waiting, NO_RETRIES)).detail


# A driver that recovered by itself: one validation for each run.


@pytest.mark.parametrize("pool", [NO_RETRIES, HALTED], ids=["open", "in a halt"])
def test_a_recovered_driver_is_validated(pool: PoolView) -> None:
    recovered = failed(driver_pods=(driver_pod(started=NOW - 30),))
    assert step_at_rest(recovered, pool) == VALIDATE


IN_VAIN = {
    "this run was validated already": failed(),
    "it is not ready": failed(driver_pods=(driver_pod(ready=False, started=NOW - 30),)),
    "it goes": failed(driver_pods=(driver_pod(deleting=True, started=NOW - 30),)),
    "it is not there": unsynced(),
    "another driver runs": with_record(
        failed(driver_label=label_of(OLD), driver_pods=(driver_pod(OLD),)), label=label_of(OLD)
    ),
}


@pytest.mark.parametrize("case", IN_VAIN)
def test_a_driver_that_did_not_recover_is_not_validated(case: str) -> None:
    assert wait_of(step_at_rest(IN_VAIN[case], NO_RETRIES)).code == "failed"


# Retries of the strategy.


def test_a_failed_node_is_retried_by_the_strategy() -> None:
    broken = failed()
    step = step_of(step_at_rest(broken))
    write = only_action(step, WriteNode)
    record = write.applied.record
    assert record is not None
    assert (record.state, record.attempt, record.started) == ("upgrade-required", 1, True)
    assert write.applied.unschedulable is True
    outcome = candidate_of(step_at_rest(apply_step(broken, step)))
    assert (outcome.operation, outcome.target, outcome.outside) == (
        Operation.SAME_LABEL,
        NEW,
        False,
    )


@pytest.mark.parametrize(
    ("attempts", "retries", "again"), [(1, 1, True), (2, 1, False), (2, 2, True)]
)
def test_retries_are_limited_by_the_strategy(attempts: int, retries: int, again: bool) -> None:
    retrying_pool = replace(pool(), strategy=StrategySpec(retries=retries))
    outcome = step_at_rest(with_record(failed(), attempt=attempts), retrying_pool)
    assert isinstance(outcome, Step) is again


def test_a_retry_names_the_failure_without_its_details_which_were_told_with_it() -> None:
    node = with_record(failed(), cause="driver-start: it restarted 3 times (code 1, and its log)")
    outcome = step_at_rest(node, replace(pool(), strategy=StrategySpec(retries=1)))
    assert isinstance(outcome, Step)
    assert outcome.because == (
        "automatic retry after a failure (driver-start: it restarted 3 times)"
    )


def test_a_halted_target_is_not_retried() -> None:
    outcome = wait_of(step_at_rest(failed(), HALTED))
    assert outcome.code == "failed"
    assert "validation: cuda; no retry" in outcome.detail
    assert "1 of 1 allowed failures" in outcome.detail
    assert outcome.who == FAILED_AND_RELEASED
    released = with_record(failed(), attempt=2)
    assert wait_of(step_at_rest(released, HALTED)).who == FAILED_AND_HALTED


def test_a_paused_retry_keeps_its_state() -> None:
    outcome = wait_of(step_at_rest(failed(), pool(constraints={"paused": "the brake is Pause"})))
    assert outcome.code == "paused"


# Another target.


def test_a_new_target_is_another_chance_outside_the_counts() -> None:
    broken = failed(target=OLD)
    step = step_of(step_at_rest(broken, NO_RETRIES))
    outcome = candidate_of(step_at_rest(apply_step(broken, step), NO_RETRIES))
    assert (outcome.operation, outcome.target, outcome.outside) == (Operation.UPGRADE, NEW, True)


def test_a_node_that_failed_before_its_label_moved_is_inside_the_counts() -> None:
    gave_up = with_record(
        failed(target=OLD), started=False, evidence=evidence(OLD), cause="eviction: ml/train-0"
    )
    gave_up = replace(gave_up, components=done(target=OLD).components)
    step = step_of(step_at_rest(gave_up, NO_RETRIES))
    outcome = candidate_of(step_at_rest(apply_step(gave_up, step), NO_RETRIES))
    assert outcome.outside is False


@pytest.mark.parametrize(("attempts", "again"), [(1, True), (2, False)])
def test_joining_the_last_good_target_is_retried_as_often_as_the_strategy_allows(
    attempts: int, *, again: bool
) -> None:
    gave_up = with_record(
        unsynced(driver_label=""), target=OLD, label="", evidence=None, attempt=attempts
    )
    gave_up = with_record(gave_up, started=False, cause="eviction: ml/train-0")
    pool_view = pool(constraints={"proven": frozenset({OLD}), "last_good": OLD})
    outcome = step_at_rest(replace(gave_up, components=idle_components()), pool_view)
    if again:
        assert isinstance(outcome, Step)
        assert "eviction: ml/train-0" in outcome.because
    else:
        assert isinstance(outcome, Wait)
        assert outcome.code == "failed"


def test_a_failed_removal_gives_way_to_a_wanted_target() -> None:
    removed = with_record(
        unsynced(driver_label=""), operation=Operation.REMOVE, target="", label=""
    )
    step = step_of(step_at_rest(removed, NO_RETRIES))
    outcome = candidate_of(step_at_rest(apply_step(removed, step), NO_RETRIES))
    assert outcome.operation is Operation.UPGRADE


def test_an_unsettled_target_does_not_hide_the_failure() -> None:
    unsettled = with_build(NO_RETRIES, readiness=Readiness.UNSETTLED)
    same = wait_of(step_at_rest(failed(driver_pods=(driver_pod(started=NOW - 30),)), unsettled))
    assert same.code == "failed"
    other = wait_of(step_at_rest(failed(target=OLD), unsettled))
    assert other.code == "target-unsettled"


def test_an_uncordoned_failed_node_stays_uncordoned_and_failed() -> None:
    uncordoned = failed(cordoned=False, field_managers=done().field_managers)
    assert wait_of(step_at_rest(uncordoned, NO_RETRIES)).code == "failed"
    write = only_action(step_of(step_at_rest(uncordoned)), WriteNode)
    assert write.applied.unschedulable is None


@pytest.mark.parametrize(
    ("proof", "again"),
    [
        (evidence(passed=False), False),
        (evidence(passed=False, driver_pod_uid="before"), True),
        (evidence(), True),
    ],
)
def test_a_failed_node_is_validated_once_per_driver_run(proof: Evidence, *, again: bool) -> None:
    view = replace(with_record(failed(), revalidated="", attempt=9), evidence=proof)
    outcome = step_at_rest(view)
    assert isinstance(outcome, Candidate) is again
