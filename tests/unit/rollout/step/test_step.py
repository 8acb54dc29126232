"""A node is looked at in order: what people did, what is under way, and what is wanted."""

from msgspec.structs import replace

from libs.contracts.node import Operation, Record, UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Candidate, Told
from libs.rollout.step import step
from libs.rollout.views.machine import WorkPod
from libs.rollout.views.node import Field
from tests.unit.rollout.building import NEW, OLD, done, granted, instant, label_of, pool, required
from tests.unit.rollout.underway.carrying import (
    carried,
    in_flight,
    node_write,
    notes_in,
    record_in,
    the,
    wait_of,
)

S = UpgradeState
JOB = WorkPod(namespace="ml", name="train", uid="u", gpu=True, job=True)


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
    edited = replace(view, state="upgrade-done", writers={Field.STATE: "kubectl-label"})
    outcome = step(edited, granted(pool(), edited), instant())
    assert node_write(outcome).applied.state == S.WAIT_FOR_JOBS_REQUIRED
    assert [note.told for note in notes_in(outcome)] == [Told.EDIT]


def test_a_driver_label_edited_in_flight_leads_back_to_the_start_of_the_driver() -> None:
    view = in_flight(S.VALIDATION_REQUIRED, driver_label="", record={"deadline": 9e9})
    where = granted(pool(), view)
    outcome = step(view, where, instant())
    record = record_in(outcome)
    assert (record.state, record.edits, record.label) == (S.POD_RESTART_REQUIRED, 1, label_of(NEW))
    assert record.old_pod_uid == f"pod-{NEW}-node-1"
    after = carried(view, the(outcome))
    assert after.driver_label == label_of(NEW)
    again = step(after, where, instant())  # the pod that lost its label is not its swap's
    assert [type(action).__name__ for action in the(again).actions] == ["DeleteDriverPod"]


def test_what_the_pool_wants_is_asked_last() -> None:
    view = done(target=OLD)
    record = record_in(step(view, pool(), instant()))
    assert isinstance(record, Record)
    assert record.state == S.UPGRADE_REQUIRED
