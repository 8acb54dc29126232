"""The order in which a node is examined: edits, the operation in flight, the wanted target."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import LeaseOwner, NodeRecord, Operation, UpgradeState
from libs.contracts.rollout import InFlight, RolloutStatus
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Candidate, NodeOutcome, NoticeKind, Step, Wait
from libs.rollout.outcomes import next_wake
from libs.rollout.pool.conditions import Pause, PauseReason
from libs.rollout.pool.evaluation import PoolEvaluation, evaluate_pool
from libs.rollout.pool.tally import PoolTally
from libs.rollout.step import NodePhase, constrain, phase_of
from libs.rollout.views.machine import WorkloadPod
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.wait_reasons import BlockReason
from tests.unit.rollout.allocate.builders import open_pool
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    done,
    evidence,
    failed,
    granted,
    in_flight_node,
    instant,
    label_of,
    lease,
    node,
    node_case,
    pool,
    required,
    step,
)
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
    assert step(done()) is None


def test_a_node_without_anything_to_wait_for_is_not_looked_at_again() -> None:
    still = node(components={})
    assert next_wake(still, None, None, NOW) is None
    waits = Wait(code=WaitCode.PAUSED, detail="", since=NOW)
    assert next_wake(still, waits, None, NOW) is None
    assert next_wake(still, replace(waits, until=NOW + 5), NOW + 9, NOW) == NOW + 5
    assert next_wake(still, waits, NOW + 9, NOW) == NOW + 9


def test_a_node_is_a_candidate_until_it_has_an_entry() -> None:
    view = required(pods=())
    outcome = candidate_of(step(view))
    assert (outcome.operation, outcome.target) == (Operation.UPGRADE, NEW)
    record = record_in(step(view, granted(pool(), view)))
    assert (record.state, record.token) == (S.POD_DELETION_REQUIRED, 8)


def test_a_node_with_an_entry_reports_why_it_cannot_start() -> None:
    view = required(pods=(), skip=True)
    assert wait_of(step(view, granted(pool(), view))).code == WaitCode.SKIPPED
    done_node = done()
    assert step(done_node, granted(pool(), done_node)) is None


def test_a_start_that_was_granted_for_another_target_is_not_asked_for_again() -> None:
    """The entry has to leave the Rollout first: a candidate would be granted a second one."""
    view = required(pods=())
    found = wait_of(step(view, granted(pool(), view, target=OLD)))
    assert (found.code, OLD in found.detail) == (WaitCode.BUDGET, True)


def test_a_node_in_flight_goes_on() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, pods=(JOB,))
    assert wait_of(step(view, granted(pool(), view))).code == WaitCode.JOBS


def test_edits_come_before_the_operation_in_flight() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, pods=(JOB,))
    edited = replace(view, state="upgrade-done", last_managers={NodeField.STATE: "kubectl-label"})
    outcome = step(edited, granted(pool(), edited))
    assert node_write(outcome).applied.state == S.WAIT_FOR_JOBS_REQUIRED
    assert [note.kind for note in notices_in(outcome)] == [NoticeKind.EDIT]


def test_an_edited_driver_label_restarts_the_driver() -> None:
    view = in_flight(S.VALIDATION_REQUIRED, driver_label="", record={"deadline": 9e9})
    pool_view = granted(pool(), view)
    outcome = step(view, pool_view)
    record = record_in(outcome)
    assert (record.state, record.edits, record.label) == (S.POD_RESTART_REQUIRED, 1, label_of(NEW))
    assert record.old_pod_uid == f"pod-{NEW}-node-1"
    after = run_step(view, step_of(outcome))
    assert after.driver_label == label_of(NEW)
    second_outcome = step(after, pool_view)  # the old pod has another label than the swap
    assert [type(action).__name__ for action in step_of(second_outcome).actions] == [
        "DeleteDriverPod"
    ]


def test_the_wanted_target_comes_last() -> None:
    view = done(target=OLD)
    record = record_in(step(view))
    assert isinstance(record, NodeRecord)
    assert record.state == S.UPGRADE_REQUIRED


# How a pool constrains the outcomes of its nodes.


NODE = node()
ACTS = Step(actions=(), because="something is done")
WAITS = Wait(code=WaitCode.JOBS, detail="a job", since=NOW)
STARTS = Candidate(operation=Operation.UPGRADE, target=NEW, label=label_of(NEW))
FLIGHT = InFlight(node=NODE.name, token=1, target=NEW, since=NOW)
ALL: tuple[Step | Wait | Candidate, ...] = (ACTS, WAITS, STARTS)


def evaluation(*, leading: bool = True, frozen: str = "", **changes: Any) -> PoolEvaluation:
    result = evaluate_pool(open_pool(), PoolTally(), instant(), leading=True)
    constraints = replace(result.constraints, leading=leading, frozen=frozen)
    return replace(result, constraints=constraints, **changes)


def codes(evaluated: PoolEvaluation, view: NodeView = NODE) -> list[WaitCode | None]:
    """Return the wait code that replaces a step, a wait and a start; None where it is kept."""
    outcomes = [constrain(view, outcome, evaluated, instant()) for outcome in ALL]
    return [
        None if after is before else after.code if isinstance(after, Wait) else WaitCode.GATE
        for before, after in zip(ALL, outcomes, strict=True)
    ]


def test_outcomes_are_kept_in_an_open_pool() -> None:
    assert codes(evaluation()) == [None, None, None]


def test_a_freeze_holds_every_outcome() -> None:
    frozen = evaluation(frozen="it is frozen", withdrawn=frozenset({NODE.uid}))
    assert codes(frozen) == [WaitCode.FROZEN] * 3


def test_a_withdrawn_entry_waits_with_the_reason_of_its_pool() -> None:
    dropped = frozenset({NODE.uid})
    assert codes(evaluation(withdrawn=dropped)) == [WaitCode.BUDGET] * 3
    stop = BlockReason(WaitCode.PAUSED, "the brake is Pause", "an administrator")
    paused = evaluation(withdrawn=dropped, pause=Pause(PauseReason.BRAKE, stop))
    result = wait_of(constrain(NODE, WAITS, paused, instant()))
    assert (result.code, result.detail, result.who) == (stop.code, stop.detail, stop.who)
    assert codes(evaluation(withdrawn=frozenset({"uid-of-another"}))) == [None, None, None]


def test_a_node_that_people_keep_out_does_not_wait_for_the_end_of_a_freeze() -> None:
    leased = Wait(code=WaitCode.SKIPPED, detail="ann has the node", since=NOW)
    assert constrain(NODE, leased, evaluation(frozen="it is frozen"), instant()) is leased


def test_without_leadership_only_waits_remain() -> None:
    assert codes(evaluation(leading=False)) == [WaitCode.STALE, None, WaitCode.STALE]


def test_a_retargeted_node_does_nothing_until_the_rollout_is_written() -> None:
    assert codes(evaluation(retargeted={NODE.uid: FLIGHT})) == [WaitCode.PROOF, None, None]
    assert codes(evaluation(retargeted={"uid-of-another": FLIGHT})) == [None, None, None]


def test_a_node_with_an_entry_is_no_candidate() -> None:
    stored = RolloutStatus(target=NEW, in_flight={NODE.uid: FLIGHT})
    assert codes(evaluation(stored=stored)) == [None, None, WaitCode.BUDGET]


def test_a_node_that_is_not_ready_is_no_candidate() -> None:
    not_ready = node(ready=False)
    assert codes(evaluation(), not_ready) == [None, None, WaitCode.NOT_READY]


# The phase in which a node is counted in its Rollout.


HUMAN = lease(owner=LeaseOwner.HUMAN)
VALIDATES = {"operation": Operation.VALIDATE}


def waits(code: WaitCode) -> Wait:
    return Wait(code=code, detail="", since=NOW)


@pytest.mark.parametrize(
    ("given", "outcome", "expected"),
    [
        (done(), None, NodePhase.DONE),
        (node(), None, NodePhase.DONE),
        (node(excluded=True), None, NodePhase.EXCLUDED),
        (node(excluded=True), ACTS, NodePhase.EXCLUDED),
        (node(excluded=True, driver_label=label_of(OLD)), ACTS, NodePhase.WAITING),
        (in_flight_node(), ACTS, NodePhase.IN_FLIGHT),
        (replace(in_flight_node(), record=None), ACTS, NodePhase.IN_FLIGHT),
        (in_flight_node(record={"evidence": evidence()}), ACTS, NodePhase.IN_FLIGHT),
        (in_flight_node(record=VALIDATES), ACTS, NodePhase.IN_FLIGHT),
        (in_flight_node(record={**VALIDATES, "evidence": evidence()}), ACTS, NodePhase.DONE),
        (failed(), waits(WaitCode.FAILED), NodePhase.FAILED),
        (done(), waits(WaitCode.DRIVER_RESTARTING), NodePhase.DONE),
        (done(target=OLD), waits(WaitCode.NOT_READY), NodePhase.WAITING),
        (done(variant=""), waits(WaitCode.TARGET_UNSETTLED), NodePhase.WAITING),
        (done(record=None), waits(WaitCode.RECORD_LOST), NodePhase.WAITING),
        (required(), waits(WaitCode.BUDGET), NodePhase.WAITING),
        (required(target=NEW), waits(WaitCode.BUDGET), NodePhase.WAITING),
        (done(target=OLD, lease=HUMAN), waits(WaitCode.SKIPPED), NodePhase.SKIPPED),
        (required(lease=HUMAN), waits(WaitCode.PAUSED), NodePhase.WAITING),
        (required(), waits(WaitCode.SKIPPED), NodePhase.SKIPPED),
        (required(skip=True), ACTS, NodePhase.SKIPPED),
    ],
)
def test_the_phase_in_which_a_node_is_counted(
    given: NodeView, outcome: NodeOutcome, expected: NodePhase
) -> None:
    leased = given.upgrade_lease is not None
    assert phase_of(node_case(given), outcome, leased=leased) is expected
