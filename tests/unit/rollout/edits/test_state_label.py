"""Somebody edited the state label (docs/states.md#people)."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import MANAGER, Operation, Owner, UpgradeState
from libs.rollout.decision import Candidate, Note, Step, Told, Wait, WriteNode
from libs.rollout.edits import edits
from libs.rollout.rest import rest
from libs.rollout.views.node import Field, NodeView
from libs.rollout.writes import readable
from tests.unit.rollout.building import (
    NEW,
    NOW,
    OLD,
    PERSON,
    after,
    done,
    evidence,
    failed,
    instant,
    lease,
    pool,
    required,
    under_way,
)


def edited(node: NodeView, state: str, *, by: str = PERSON) -> NodeView:
    """As the API server shows it: who wrote last owns it; what was removed, nobody."""
    owners = {**node.owners, Field.STATE: (by,)}
    if not state:
        del owners[Field.STATE]
    return replace(node, state=state, owners=owners, writers={Field.STATE: by})


def write(step: object) -> WriteNode:
    assert isinstance(step, Step), step
    (action,) = (action for action in step.actions if isinstance(action, WriteNode))
    return action


def note(step: object) -> Note:
    assert isinstance(step, Step)
    (action,) = (action for action in step.actions if isinstance(action, Note))
    return action


# upgrade-required, on a node that is done or failed: a retry.

RETRIED = {
    "done": (done(), evidence(NEW)),
    "done, and its policy wants another anyway": (done(target=OLD), evidence(OLD)),
    "failed": (failed(), None),
}


@pytest.mark.parametrize("case", RETRIED)
def test_upgrade_required_on_a_node_that_has_ended_is_a_retry(case: str) -> None:
    ended, proof = RETRIED[case]
    node = edited(ended, "upgrade-required")
    step = edits(node, pool(), instant())
    made = write(step).applied.record
    assert made is not None
    assert (made.state, made.asked, made.since) == ("upgrade-required", True, NOW)
    assert made.cause == f"asked for by {PERSON}"
    assert made.evidence == proof
    assert write(step).applied.unschedulable is (True if ended.cordoned else None)
    told = note(step)
    assert (told.told, told.manager, told.after) == (Told.REQUEST, PERSON, "upgrade-required")
    assert isinstance(step, Step)
    later = after(node, step)
    assert edits(later, pool(), instant()) is None
    outcome = rest(later, pool(), instant())
    assert isinstance(outcome, Candidate)


def test_what_is_asked_for_is_done_though_the_evidence_fits() -> None:
    node = edited(done(), "upgrade-required")
    step = edits(node, pool(), instant())
    assert isinstance(step, Step)
    outcome = rest(after(node, step), pool(), instant())
    assert isinstance(outcome, Candidate)
    assert outcome.operation is Operation.SAME_LABEL


def test_a_retry_ends_a_back_off_and_forgets_restarts() -> None:
    made = done()
    record = readable(made)
    assert record is not None
    burdened = replace(
        record, back_off_until=NOW + 9, back_off_seconds=600.0, restarts=(NOW,), edits=1
    )
    step = edits(edited(replace(made, record=burdened), "upgrade-required"), pool(), instant())
    cleared = write(step).applied.record
    assert cleared is not None
    assert (cleared.back_off_until, cleared.back_off_seconds) == (0.0, 0.0)
    assert cleared.restarts == ()


# Anything else is taken back, once.

OTHER = [
    ("done", done(), "upgrade-failed"),
    ("done", done(), "pod-restart-required"),
    ("done", done(), "nonsense"),
    ("done", done(), ""),
    ("failed", failed(), "upgrade-done"),
    ("failed", failed(), "uncordon-required"),
    ("failed", failed(), ""),
    ("stamped", required(), "upgrade-done"),
    ("stamped", required(), ""),
    ("waits for jobs", under_way("wait-for-jobs-required"), "upgrade-done"),
    ("waits for jobs", under_way("wait-for-jobs-required"), "upgrade-required"),
    ("evicts", under_way("pod-deletion-required"), "pod-restart-required"),
    ("drains", under_way("drain-required"), "upgrade-done"),
    ("starts", under_way("pod-restart-required"), "validation-required"),
    ("starts", under_way("pod-restart-required"), ""),
    ("validates", under_way("validation-required"), "upgrade-done"),
    ("validates", under_way("validation-required"), "upgrade-failed"),
]


@pytest.mark.parametrize(("name", "node", "state"), OTHER, ids=lambda one: str(one)[:24])
def test_all_else_is_taken_back_once_and_told(name: str, node: NodeView, state: str) -> None:
    was = readable(node)
    assert was is not None
    touched = edited(node, state)
    step = edits(touched, pool(), instant())
    applied = write(step).applied
    assert applied.record == replace(was, edits=1)
    assert (applied.state, applied.lease) == (was.state, node.lease)
    assert applied.driver_label == node.driver_label
    assert applied.unschedulable is (True if node.cordoned else None)
    told = note(step)
    assert (told.told, told.field, told.manager) == (Told.EDIT, "state", PERSON)
    assert (told.before, told.after) == (was.state, state)
    assert isinstance(step, Step)
    back = after(touched, step)
    assert edits(back, pool(), instant()) is None
    again = edits(edited(back, state), pool(), instant())
    assert isinstance(again, Wait)
    assert (again.code, again.until) == ("label-edited", None)
    assert PERSON in again.who
    assert edits(edited(back, was.state), pool(), instant()) is None


def test_who_removed_it_is_not_known_and_that_is_said() -> None:
    node = replace(edited(done(), ""), writers={})
    assert note(edits(node, pool(), instant())).manager == "somebody"


def test_a_wish_is_no_new_attempt_so_edits_count_on_until_one_begins() -> None:
    made = done(target=OLD)
    record = readable(made)
    assert record is not None
    step = rest(replace(made, record=replace(record, edits=1)), pool(), instant())
    stamped = write(step).applied.record
    assert stamped is not None
    assert stamped.edits == 1


def test_after_two_edits_a_retry_is_still_heard() -> None:
    made = failed()
    record = readable(made)
    assert record is not None
    twice = replace(made, record=replace(record, edits=1))
    assert isinstance(edits(edited(twice, "upgrade-done"), pool(), instant()), Wait)
    step = edits(edited(twice, "upgrade-required"), pool(), instant())
    assert write(step).applied.state == UpgradeState.UPGRADE_REQUIRED


@pytest.mark.parametrize("state", ["cordon-required", "upgrade-required"])
def test_an_operator_at_work_here_is_not_fought_over_the_label(state: str) -> None:
    node = edited(done(), state, by="gpu-operator")
    outcome = edits(node, pool(), instant(foreign_operator="gpu-operator leads here"))
    assert isinstance(outcome, Wait)
    assert outcome.code == "foreign-operator"


def test_a_node_that_somebody_else_has_leased_is_his() -> None:
    node = edited(done(lease=lease(owner=Owner.HUMAN)), "nonsense")
    assert edits(node, pool(), instant()) is None


def test_a_label_of_the_same_value_is_no_edit_whoever_wrote_it() -> None:
    shared = {**done().owners, Field.STATE: (MANAGER, PERSON)}
    assert edits(done(owners=shared), pool(), instant()) is None


def test_a_person_who_edits_label_and_cordon_of_a_leased_node_loses_both() -> None:
    """The cordon is ours to keep while pods leave; it is put back with the same write."""
    node = edited(under_way("wait-for-jobs-required"), "upgrade-done")
    owners = {field: names for field, names in node.owners.items() if field is not Field.CORDON}
    step = edits(replace(node, cordoned=False, owners=owners), pool(), instant())
    assert write(step).applied.unschedulable is True
