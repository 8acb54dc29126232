"""A node is looked at in order: what people did, what is under way, and what is wanted."""

from msgspec.structs import replace

from libs.contracts.node import NodeRecord, Operation, UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Candidate, NoticeKind
from libs.rollout.step import step
from libs.rollout.views.machine import WorkloadPod
from libs.rollout.views.node import NodeField
from tests.unit.rollout.builders import NEW, OLD, done, granted, instant, label_of, pool, required
from tests.unit.rollout.in_flight.step_runner import (
    in_flight,
    node_write,
    notices_in,
    record_in,
    run_step,
    step_of,
    wait_of,
)

S = UpgradeState
JOB = WorkloadPod(namespace="ml", name="train", uid="u", gpu=True, job=True)


def test_what_is_in_place_is_left_alone() -> None:
    assert step(done(), pool(), instant()) is None


def test_a_node_that_wants_a_change_is_a_candidate_until_it_has_a_place() -> None:
    view = required(pods=())
    outcome = step(view, pool(), instant())
    assert isinstance(outcome, Candidate)
    assert (outcome.operation, outcome.target) == (Operation.UPGRADE, NEW)
    record = record_in(step(view, granted(pool(), view), instant()))
    assert (record.state, record.token) == (S.POD_DELETION_REQUIRED, 8)


def test_who_has_a_place_and_cannot_start_now_says_why() -> None:
    view = required(pods=(), skip=True)
    assert wait_of(step(view, granted(pool(), view), instant())).code == WaitCode.SKIPPED
    settled = done()
    assert step(settled, granted(pool(), settled), instant()) is None


def test_a_node_under_way_goes_on() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, pods=(JOB,))
    assert wait_of(step(view, granted(pool(), view), instant())).code == WaitCode.JOBS


def test_what_people_did_comes_before_what_is_under_way() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, pods=(JOB,))
    edited = replace(view, state="upgrade-done", last_managers={NodeField.STATE: "kubectl-label"})
    outcome = step(edited, granted(pool(), edited), instant())
    assert node_write(outcome).applied.state == S.WAIT_FOR_JOBS_REQUIRED
    assert [note.kind for note in notices_in(outcome)] == [NoticeKind.EDIT]


def test_a_driver_label_edited_in_flight_leads_back_to_the_start_of_the_driver() -> None:
    view = in_flight(S.VALIDATION_REQUIRED, driver_label="", record={"deadline": 9e9})
    where = granted(pool(), view)
    outcome = step(view, where, instant())
    record = record_in(outcome)
    assert (record.state, record.edits, record.label) == (S.POD_RESTART_REQUIRED, 1, label_of(NEW))
    assert record.old_pod_uid == f"pod-{NEW}-node-1"
    after = run_step(view, step_of(outcome))
    assert after.driver_label == label_of(NEW)
    again = step(after, where, instant())  # the pod that lost its label is not its swap's
    assert [type(action).__name__ for action in step_of(again).actions] == ["DeleteDriverPod"]


def test_what_the_pool_wants_is_asked_last() -> None:
    view = done(target=OLD)
    record = record_in(step(view, pool(), instant()))
    assert isinstance(record, NodeRecord)
    assert record.state == S.UPGRADE_REQUIRED
