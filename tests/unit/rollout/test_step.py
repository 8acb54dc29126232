"""The order in which a node is examined: edits, the operation in flight, the wanted target."""

from msgspec.structs import replace

from libs.contracts.node import NodeRecord, Operation, UpgradeState, WaitCode
from libs.rollout.decision import NoticeKind
from libs.rollout.step import step
from libs.rollout.views.machine import WorkloadPod
from libs.rollout.views.node import NodeField
from tests.unit.rollout.builders import NEW, OLD, done, granted, instant, label_of, pool, required
from tests.unit.rollout.in_flight.step_runner import in_flight, run_step
from tests.unit.rollout.outcomes import (
    candidate_of,
    node_write,
    notices_in,
    record_in,
    step_of,
    wait_of,
)

S = UpgradeState
JOB = WorkloadPod(namespace="ml", name="train", uid="u", gpu=True, job=True)


def test_a_node_in_place_is_left_alone() -> None:
    assert step(done(), pool(), instant()) is None


def test_a_node_is_a_candidate_until_it_has_an_entry() -> None:
    view = required(pods=())
    outcome = candidate_of(step(view, pool(), instant()))
    assert (outcome.operation, outcome.target) == (Operation.UPGRADE, NEW)
    record = record_in(step(view, granted(pool(), view), instant()))
    assert (record.state, record.token) == (S.POD_DELETION_REQUIRED, 8)


def test_a_node_with_an_entry_reports_why_it_cannot_start() -> None:
    view = required(pods=(), skip=True)
    assert wait_of(step(view, granted(pool(), view), instant())).code == WaitCode.SKIPPED
    settled = done()
    assert step(settled, granted(pool(), settled), instant()) is None


def test_a_node_in_flight_goes_on() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, pods=(JOB,))
    assert wait_of(step(view, granted(pool(), view), instant())).code == WaitCode.JOBS


def test_edits_come_before_the_operation_in_flight() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, pods=(JOB,))
    edited = replace(view, state="upgrade-done", last_managers={NodeField.STATE: "kubectl-label"})
    outcome = step(edited, granted(pool(), edited), instant())
    assert node_write(outcome).applied.state == S.WAIT_FOR_JOBS_REQUIRED
    assert [note.kind for note in notices_in(outcome)] == [NoticeKind.EDIT]


def test_an_edited_driver_label_restarts_the_driver() -> None:
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


def test_the_wanted_target_comes_last() -> None:
    view = done(target=OLD)
    record = record_in(step(view, pool(), instant()))
    assert isinstance(record, NodeRecord)
    assert record.state == S.UPGRADE_REQUIRED
