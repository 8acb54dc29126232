"""The first write of each operation, and why a granted node does not begin."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.facts import Gate
from libs.contracts.node import (
    MANAGER,
    REQUEST_ANNOTATION,
    REQUESTED_ANNOTATION,
    SAFE_LOAD_ANNOTATION,
    LeaseOwner,
    NodeLease,
    NodeRecord,
    NodeRequest,
    Operation,
    UpgradeState,
)
from libs.contracts.waits import WaitCode
from libs.policy.kinds.upgrade_policy import WaitForCompletion
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import NodeOutcome, NoticeKind
from libs.rollout.views.machine import WorkloadPod
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    OPERATOR,
    PERSON,
    begin,
    done,
    evidence,
    failed,
    granted,
    instant,
    label_of,
    node,
    pool,
    required,
    with_record,
    without_driver,
)
from tests.unit.rollout.in_flight.test_whole_upgrades import candidate
from tests.unit.rollout.outcomes import node_write, notices_in, record_in, wait_of

JOB = WorkloadPod(namespace="ml", name="train", uid="u0", gpu=True, job=True)
SELECTS = {"wait_for_completion": WaitForCompletion(pod_selector="kind=job", timeout_seconds=600)}
S = UpgradeState


def first_write(
    view: NodeView,
    pool_view: PoolView | None = None,
    operation: Operation = Operation.UPGRADE,
    *,
    flight: dict[str, Any] | None = None,
    constraints: dict[str, Any] | None = None,
    **visibility: Any,
) -> NodeOutcome:
    start_candidate = candidate(operation)
    options: dict[str, Any] = {
        "target": start_candidate.target,
        "token": 8,
        "outside": start_candidate.outside,
        "validates": operation is Operation.VALIDATE,
        **(flight or {}),
    }
    pool_view = granted(pool_view or pool(upgrade=SELECTS), view, **options)
    pool_view = replace(
        pool_view, constraints=replace(pool_view.constraints, **(constraints or {}))
    )
    return begin(
        view,
        start_candidate,
        pool_view.constraints.in_flight[view.uid],
        pool_view,
        instant(**visibility),
    )


@pytest.mark.parametrize(
    ("view", "operation", "state", "cordon", "deadline"),
    [
        (required(pods=(JOB,)), Operation.UPGRADE, S.WAIT_FOR_JOBS_REQUIRED, True, 600),
        (required(pods=None), Operation.UPGRADE, S.WAIT_FOR_JOBS_REQUIRED, True, 600),
        (required(), Operation.UPGRADE, S.POD_DELETION_REQUIRED, True, 300),
        (failed(pods=()), Operation.SAME_LABEL, S.POD_DELETION_REQUIRED, True, 300),
        (done(excluded=True), Operation.REMOVE, S.WAIT_FOR_JOBS_REQUIRED, True, 600),
        (required(pods=(JOB,)), Operation.RESTART, S.POD_RESTART_REQUIRED, True, 1800),
        (
            without_driver(required(pods=(JOB,))),
            Operation.SAME_LABEL,
            S.POD_RESTART_REQUIRED,
            True,
            1800,
        ),
        (without_driver(node(pods=())), Operation.BRING_UP, S.POD_RESTART_REQUIRED, None, 1800),
        (done(), Operation.VALIDATE, S.VALIDATION_REQUIRED, None, 600),
        (failed(), Operation.VALIDATE, S.VALIDATION_REQUIRED, True, 600),
    ],
)
def test_where_each_operation_begins(
    view: NodeView, operation: Operation, state: UpgradeState, cordon: bool | None, deadline: float
) -> None:
    write = node_write(first_write(view, operation=operation))
    applied, record = write.applied, write.applied.record
    assert record is not None
    assert (applied.state, record.state, applied.unschedulable) == (state, state, cordon)
    moves = state in (S.POD_RESTART_REQUIRED, S.VALIDATION_REQUIRED)
    label = record.label if moves else view.driver_label
    assert applied.driver_label == label
    assert record.started == (state == S.POD_RESTART_REQUIRED)
    assert record.deadline == NOW + deadline
    assert write.lowers_capacity == (operation not in (Operation.BRING_UP, Operation.VALIDATE))
    assert applied.lease == NodeLease(
        node_uid=view.uid, owner=LeaseOwner.UPGRADE, token=8, since=NOW
    )
    assert (record.token, record.operation, record.since) == (8, operation, NOW)
    replaced = record.started and view.driver_pods
    assert record.old_pod_uid == (view.driver_pods[0].uid if replaced else "")
    assert record.paused == (state == S.POD_DELETION_REQUIRED)


def test_only_a_shut_gate_skips_the_eviction() -> None:
    crashed = replace(without_driver(required(pods=())), gate=Gate(admitted_pod_uid="p"))
    assert record_in(first_write(crashed)).state == S.POD_DELETION_REQUIRED
    unkept = replace(without_driver(required(pods=())), gate=None)
    assert record_in(first_write(unkept)).state == S.POD_RESTART_REQUIRED
    loaded = replace(required(pods=()), gate=Gate())
    assert record_in(first_write(loaded)).state == S.POD_DELETION_REQUIRED
    for operation in (Operation.TAKE_OVER, Operation.REMOVE):
        bare = without_driver(done(excluded=True, pods=()))
        assert record_in(first_write(bare, operation=operation)).state == S.POD_DELETION_REQUIRED
    unseen = replace(without_driver(required(pods=())), modules_reported=False)
    assert record_in(first_write(unseen)).state == S.POD_DELETION_REQUIRED


@pytest.mark.parametrize(
    ("view", "operation", "options", "code"),
    [
        (required(), Operation.UPGRADE, {"flight": {"target": OLD}}, WaitCode.BUDGET),
        (required(), Operation.UPGRADE, {"constraints": {"halted": {NEW: "3"}}}, WaitCode.HALTED),
        (
            required(),
            Operation.UPGRADE,
            {"constraints": {"may_begin": frozenset()}},
            WaitCode.BUDGET,
        ),
        (required(), Operation.UPGRADE, {"ages": {"nodes": 91.0}}, WaitCode.STALE),
        (done(), Operation.VALIDATE, {"constraints": {"may_begin": frozenset()}}, WaitCode.BUDGET),
        (required(), Operation.UPGRADE, {"flight": {"token": 7}}, WaitCode.BUDGET),
        (required(), Operation.UPGRADE, {"flight": {"outside": True}}, WaitCode.BUDGET),
        (required(), Operation.UPGRADE, {"flight": {"validates": True}}, WaitCode.BUDGET),
        (done(), Operation.VALIDATE, {"flight": {"validates": False}}, WaitCode.BUDGET),
    ],
)
def test_why_a_grant_is_not_used(
    view: NodeView, operation: Operation, options: dict[str, Any], code: WaitCode
) -> None:
    assert wait_of(first_write(view, operation=operation, **options)).code == code


@pytest.mark.parametrize(
    ("operation", "options"),
    [
        (Operation.VALIDATE, {"constraints": {"halted": {NEW: "3"}}}),
        (Operation.VALIDATE, {"ages": {"pods": 1000.0}}),
        (Operation.BRING_UP, {"ages": {"pods": 1000.0}}),
        (Operation.REMOVE, {"constraints": {"halted": {"": "3"}}}),
        (Operation.UPGRADE, {"ages": {"pods": 89.0}}),
    ],
)
def test_conditions_that_do_not_prevent_a_start(
    operation: Operation, options: dict[str, Any]
) -> None:
    view = without_driver(node()) if operation is Operation.BRING_UP else done(excluded=True)
    assert node_write(first_write(view, operation=operation, **options)).applied.lease is not None


@pytest.mark.parametrize(
    ("cordoned", "owners", "before", "expected"),
    [
        (False, (), False, False),
        (True, ("kubectl",), False, True),
        (True, ("kubectl", MANAGER), False, True),
        (True, (), False, True),
        (True, (MANAGER,), False, False),
        (True, (MANAGER,), True, True),
    ],
)
def test_an_earlier_cordon_is_recorded_for_the_release(
    cordoned: bool, owners: tuple[str, ...], before: bool, expected: bool
) -> None:
    view = required(cordoned=cordoned, initially_cordoned=before)
    view = replace(view, field_managers={**view.field_managers, NodeField.CORDON: owners})
    assert node_write(first_write(view)).applied.initially_cordoned == expected


def test_a_start_clears_the_requests_that_it_fulfils() -> None:
    step = first_write(required(request=NodeRequest.WITHOUT_PREFLIGHT, requested=True))
    assert node_write(step).applied.cleared == (REQUEST_ANNOTATION, REQUESTED_ANNOTATION)
    assert [note.kind for note in notices_in(step)] == [NoticeKind.REQUEST, NoticeKind.REQUEST]


def test_a_restart_clears_safe_load_with_the_label() -> None:
    waiting = required(target=NEW, safe_load=True)
    assert node_write(first_write(waiting, operation=Operation.RESTART)).applied.cleared == (
        SAFE_LOAD_ANNOTATION,
    )
    assert node_write(first_write(waiting)).applied.cleared == ()


@pytest.mark.parametrize(
    ("target", "attempt", "operation", "then"),
    [
        (NEW, 1, Operation.UPGRADE, 2),
        (OLD, 3, Operation.UPGRADE, 1),
        (NEW, 1, Operation.VALIDATE, 1),
        (OLD, 3, Operation.VALIDATE, 0),
    ],
)
def test_attempts_are_counted_for_one_target(
    target: str, attempt: int, operation: Operation, then: int
) -> None:
    view = failed()
    record = record_in(
        first_write(with_record(view, target=target, attempt=attempt, edits=1), operation=operation)
    )
    assert (record.attempt, record.edits) == (then, 0)


def test_a_validation_that_is_the_whole_upgrade_is_an_attempt() -> None:
    assert record_in(first_write(required(target=NEW), operation=Operation.VALIDATE)).attempt == 1
    view = required(target=NEW)
    view = with_record(view, attempt=1)
    assert record_in(first_write(view, operation=Operation.VALIDATE)).attempt == 2
    assert record_in(first_write(done(), operation=Operation.VALIDATE)).attempt == 0
    untouched = node(pods=())
    assert record_in(first_write(untouched, operation=Operation.VALIDATE)).attempt == 1


@pytest.mark.parametrize(("target", "kept"), [(NEW, 1200.0), (OLD, 0.0)])
def test_a_back_off_keeps_doubling_for_the_same_target_only(target: str, kept: float) -> None:
    view = required()
    record = record_in(
        first_write(
            with_record(view, target=target, back_off_seconds=1200.0, back_off_until=NOW - 1)
        )
    )
    assert (record.back_off_seconds, record.back_off_until) == (kept, 0.0)


def test_the_proof_is_kept_until_the_label_moves() -> None:
    assert record_in(first_write(required())).evidence == evidence(OLD)
    assert record_in(first_write(required(), operation=Operation.RESTART)).evidence is None


def test_revalidating_a_failed_node_records_its_driver_run() -> None:
    view = failed()
    view = with_record(view, revalidated="")
    record = record_in(first_write(view, operation=Operation.VALIDATE))
    assert record.revalidated == view.driver_pods[0].instance
    assert record.outside


@pytest.mark.parametrize(
    ("view", "operation"),
    [
        (done(), Operation.VALIDATE),
        (failed(), Operation.SAME_LABEL),
        (failed(driver_pods=()), Operation.VALIDATE),
    ],
)
def test_other_starts_keep_the_recorded_revalidation(view: NodeView, operation: Operation) -> None:
    view = with_record(view, revalidated="before")
    assert record_in(first_write(view, operation=operation)).revalidated == "before"


def test_a_start_keeps_other_fields_of_the_record() -> None:
    view = required()
    assert isinstance(view.record, NodeRecord)
    old_record = replace(
        view.record, asked=True, cordon_adopted=True, restarts=(1.0,), cause="asked for"
    )
    shared = {**view.field_managers, NodeField.CORDON: (MANAGER, OPERATOR)}
    record = record_in(
        first_write(replace(view, record=old_record, cordoned=True, field_managers=shared))
    )
    assert (record.asked, record.cordon_adopted, record.restarts) == (True, True, (1.0,))
    assert (record.cause, record.label_before) == ("asked for", label_of(OLD))


def test_the_first_write_notes_how_often_drivers_had_restarted() -> None:
    view = required()
    assert record_in(first_write(view)).restarts_before == {}
    (pod,) = view.driver_pods
    restarted = replace(view, driver_pods=(replace(pod, restarts=4),))
    assert record_in(first_write(restarted)).restarts_before == {pod.uid: 4}


def test_a_pre_installed_driver_stays_when_its_node_leaves() -> None:
    view = replace(done(excluded=True), driver_pods=())
    pool_view = replace(pool(), method=InstallMethod.PRE_INSTALLED)
    applied = node_write(first_write(view, pool_view, Operation.REMOVE)).applied
    assert (applied.state, applied.driver_label, applied.record, applied.lease) == (
        "",
        "",
        None,
        None,
    )


def test_a_driver_without_a_pod_is_removed_too() -> None:
    view = replace(done(excluded=True), driver_pods=())
    assert node_write(first_write(view, operation=Operation.REMOVE)).applied.lease is not None


def test_a_known_pre_installed_driver_is_validated_again() -> None:
    view = replace(done(), driver_pods=())
    pool_view = replace(pool(), method=InstallMethod.PRE_INSTALLED)
    assert (
        record_in(first_write(view, pool_view, Operation.VALIDATE)).state == S.VALIDATION_REQUIRED
    )


@pytest.mark.parametrize(
    "view", [done(excluded=True), replace(done(OLD, excluded=True), driver_label="another")]
)
def test_a_driver_of_ours_is_removed_from_a_pre_installed_pool(view: NodeView) -> None:
    pool_view = replace(pool(), method=InstallMethod.PRE_INSTALLED)
    assert node_write(first_write(view, pool_view, Operation.REMOVE)).applied.lease is not None


def test_the_record_of_an_earlier_node_is_void() -> None:
    view = done()
    view = with_record(view, node_uid="another", attempt=5, token=99)
    record = record_in(first_write(view, operation=Operation.TAKE_OVER))
    assert (record.node_uid, record.attempt, record.evidence) == (view.uid, 1, None)


@pytest.mark.parametrize(
    ("cordoned", "owners", "unproven"),
    [
        (True, (MANAGER,), True),
        (True, (MANAGER, PERSON), False),
        (True, (PERSON,), False),
        (False, (MANAGER,), False),
    ],
)
def test_a_node_under_our_cordon_without_a_record_is_unproven(
    cordoned: bool, owners: tuple[str, ...], unproven: bool
) -> None:
    view = node(cordoned=cordoned, field_managers={NodeField.CORDON: owners}, pods=())
    assert record_in(first_write(view, operation=Operation.TAKE_OVER)).unproven is unproven


def test_a_grant_for_another_target_is_not_used() -> None:
    assert "none" in wait_of(first_write(required(), flight={"target": ""})).detail
    assert "other" in wait_of(first_write(required(), flight={"target": "other"})).detail


def test_only_an_operation_that_cordons_records_an_earlier_cordon() -> None:
    cordoned = replace(done(), cordoned=True, field_managers={NodeField.CORDON: (PERSON,)})
    for operation, text in ((Operation.UPGRADE, True), (Operation.VALIDATE, False)):
        applied = node_write(first_write(cordoned, operation=operation)).applied
        assert applied.initially_cordoned is text


@pytest.mark.parametrize("adopted", [True, False])
def test_a_pre_installed_node_is_released_with_its_adopted_cordon(*, adopted: bool) -> None:
    pool_view = replace(pool(), method=InstallMethod.PRE_INSTALLED)
    view = with_record(
        replace(done(excluded=True), driver_pods=(), cordoned=True), cordon_adopted=adopted
    )
    view = replace(
        view, field_managers={**view.field_managers, NodeField.CORDON: (MANAGER, OPERATOR)}
    )
    applied = node_write(first_write(view, pool_view, Operation.REMOVE)).applied
    assert (applied.lease, applied.unschedulable) == (None, False if adopted else None)


def test_a_pre_installed_node_without_a_record_is_released() -> None:
    pool_view = replace(pool(), method=InstallMethod.PRE_INSTALLED)
    view = replace(done(excluded=True), driver_pods=(), record=None)
    applied = node_write(first_write(view, pool_view, Operation.REMOVE)).applied
    assert (applied.lease, applied.unschedulable) == (None, None)


def test_a_driver_under_an_unknown_label_is_removed() -> None:
    pool_view = replace(pool(targets=(NEW,)), method=InstallMethod.PRE_INSTALLED)
    view = replace(done(excluded=True), driver_pods=(), driver_label="unknown")
    assert node_write(first_write(view, pool_view, Operation.REMOVE)).applied.lease is not None
