"""Node writes are complete, and a record belongs to one Node uid."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.node import MANAGER, LeaseOwner, NodeRecord, Operation, UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout import node_writes
from libs.rollout.cordons import unchanged_cordon
from libs.rollout.decision import Candidate, NodeApplyConfiguration, Step, Wait, WriteNode
from libs.rollout.node_writes import NodeChange
from libs.rollout.step_times import time_taken
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    BOOT,
    EPOCH,
    NEW,
    NOW,
    OLD,
    PERSON,
    POOL,
    SOURCES,
    TOKEN,
    apply_step,
    done,
    driver_pod,
    evidence,
    failed,
    idle_components,
    instant,
    label_of,
    lease,
    node,
    node_case,
    pool,
    record,
    required,
    step_at_rest,
    with_record,
)
from tests.unit.rollout.outcomes import candidate_of, only_action, step_of, wait_of

S = UpgradeState


def test_record_and_lease_of_an_earlier_node_are_void() -> None:
    assert node(record=record()).current_record == record()
    assert node(record=record(node_uid="old")).current_record is None
    assert node(record=MalformedAnnotation("not JSON")).current_record is None
    assert node(lease=lease()).current_lease == lease()
    assert node(lease=lease(node_uid="old")).current_lease is None
    assert node(lease=lease(owner=LeaseOwner.REPAIR)).upgrade_lease is None
    assert node(lease=lease()).upgrade_lease == lease()


def test_a_write_is_guarded_and_complete() -> None:
    view = done(initially_cordoned=True)
    change = NodeChange(because="so", record=record(), lease=lease(), cordon=True)
    step = node_writes.write_step(node_case(view), change)
    write = only_action(step, WriteNode)
    assert (write.uid, write.revision, write.lowers_capacity) == (view.uid, view.revision, False)
    applied = write.applied
    assert applied.state == S.WAIT_FOR_JOBS_REQUIRED
    assert (applied.driver_label, applied.initially_cordoned) == (view.driver_label, True)
    assert (applied.lease, applied.record, applied.unschedulable) == (lease(), record(), True)


def write_to(view: NodeView, **changes: Any) -> NodeView:
    options: dict[str, Any] = {"lease": view.lease, "cordon": None, **changes}
    record: Any = options.pop("record", view.record)
    step = node_writes.write_step(
        node_case(view), NodeChange(because="so", record=record, **options)
    )
    return apply_step(view, step)


OWNERS = dict.fromkeys(
    (NodeField.STATE, NodeField.DRIVER, NodeField.LEASE, NodeField.RECORD), (MANAGER, PERSON)
)


def test_a_driver_label_is_kept_when_it_is_right_or_ours_or_the_node_is_in_flight() -> None:
    view = done(field_managers={NodeField.DRIVER: (PERSON,)})
    kept = (PERSON, MANAGER)
    assert write_to(view).field_managers[NodeField.DRIVER] == kept
    other = replace(view, driver_label="another")
    assert write_to(other).field_managers[NodeField.DRIVER] == (PERSON,)
    assert write_to(other, lease=lease()).field_managers[NodeField.DRIVER] == kept
    shared = replace(other, field_managers=OWNERS)
    assert write_to(shared).field_managers[NodeField.DRIVER] == kept


@pytest.mark.parametrize("owners", [OWNERS, {**OWNERS, NodeField.DRIVER: (PERSON,)}])
def test_what_a_write_removes_goes_though_another_manager_owns_it_too(
    owners: dict[NodeField, tuple[str, ...]],
) -> None:
    view = replace(done(), field_managers=owners, lease=lease())
    written = write_to(view, record=None, lease=None, driver_label="")
    assert (written.state, written.driver_label) == ("", "")
    assert (written.lease, written.record) == (None, None)


def test_what_a_write_does_not_concern_stays_with_its_manager() -> None:
    foreign = dict.fromkeys(OWNERS, (PERSON,))
    repaired = lease(owner=LeaseOwner.REPAIR)
    view = node(state="upgrade-done", driver_label="x", lease=repaired, field_managers=foreign)
    written = write_to(view, record=None, lease=None)
    assert (written.state, written.driver_label, written.lease) == ("upgrade-done", "x", repaired)


def test_a_write_that_lowers_capacity_names_its_sources() -> None:
    change = NodeChange(because="so", record=record(), lease=lease(), lowers_capacity=True)
    step = node_writes.write_step(node_case(node()), change)
    write = only_action(step, WriteNode)
    assert write.applied.record is not None
    assert write.applied.record.seen == dict.fromkeys(SOURCES, "100")


@pytest.mark.parametrize(
    ("cordoned", "owners", "kept"),
    [(True, (MANAGER,), True), (True, ("me",), None), (False, (MANAGER,), None)],
)
def test_a_cordon_of_ours_is_kept(
    cordoned: bool, owners: tuple[str, ...], kept: bool | None
) -> None:
    view = node(cordoned=cordoned, field_managers={NodeField.CORDON: owners})
    assert unchanged_cordon(view) is kept


def test_a_new_state_has_this_boot_and_its_deadline() -> None:
    pool_view = pool(constraints={"frozen_seconds": 7.0})
    old_record = record(deadline_renewed=True, epoch=1, boot_id="boot-0")
    written = node_writes.record_in_state(
        node_case(node(), pool_view), S.VALIDATION_REQUIRED, old_record, paused=False
    )
    assert (written.state, written.since, written.deadline) == (
        S.VALIDATION_REQUIRED,
        NOW,
        NOW + 600,
    )
    assert (written.boot_id, written.epoch, written.frozen_seconds) == ("boot-1", 3, 7.0)
    assert not written.deadline_renewed


GATE = Gate(admitted_pod_uid=f"pod-{OLD}-node-1")


@pytest.mark.parametrize(
    ("pods", "uid"),
    [
        ((), ""),
        ((driver_pod(OLD), driver_pod(NEW)), f"pod-{OLD}-node-1"),
        ((driver_pod(NEW), driver_pod(OLD)), f"pod-{OLD}-node-1"),
        ((driver_pod(OLD, deleting=True), driver_pod(NEW)), f"pod-{NEW}-node-1"),
        ((driver_pod(OLD, deleting=True),), f"pod-{OLD}-node-1"),
    ],
)
def test_the_current_driver_pod(pods: tuple[DriverPod, ...], uid: str) -> None:
    pod = node_writes.current_driver_pod(node(driver_pods=pods, gate=GATE))
    assert (pod.uid if pod is not None else "") == uid


@pytest.mark.parametrize(
    ("operation", "paused", "loaded", "then"),
    [
        (Operation.UPGRADE, False, True, True),
        (Operation.UPGRADE, False, False, False),
        (Operation.UPGRADE, True, False, True),
        (Operation.RESTART, False, True, False),
        (Operation.BRING_UP, False, True, True),
    ],
)
def test_the_record_of_a_repeated_driver_start(
    operation: Operation, paused: bool, loaded: bool, then: bool
) -> None:
    driver = LoadedDriver(version="1") if loaded else None
    view = replace(done(), loaded=driver)
    old_record: Any = record(operation=operation, paused=paused, evidence=view.evidence, edits=0)
    written = node_writes.record_for_restart(node_case(view), old_record, edits=1)
    assert (written.state, written.since, written.deadline) == (
        S.POD_RESTART_REQUIRED,
        NOW,
        NOW + 1800,
    )
    assert (written.old_pod_uid, written.evidence, written.edits) == (f"pod-{NEW}-node-1", None, 1)
    assert written.paused == then
    bare = replace(view, driver_pods=())
    unchanged = node_writes.record_for_restart(
        node_case(bare), replace(old_record, old_pod_uid="was")
    )
    assert unchanged.old_pod_uid == "was"


def test_a_repeated_division_of_the_gpus_keeps_the_proof_of_the_driver() -> None:
    """Its driver pod is no old one: it stays, and the next swap must not end it."""
    view = done()
    divides: Any = record(operation=Operation.MIG, old_pod_uid="was", evidence=view.evidence)
    written = node_writes.record_for_restart(node_case(view), divides)
    assert (written.old_pod_uid, written.evidence, written.paused) == ("", view.evidence, True)


# Step 1: stamping a node that wants a change, and withdrawing the stamp.


def applied(step: object) -> NodeApplyConfiguration:
    assert isinstance(step, Step)
    write = only_action(step, WriteNode)
    assert not write.lowers_capacity
    return write.applied


def record_of(step: object) -> NodeRecord:
    record = applied(step).record
    assert record is not None
    return record


def test_a_stamp_changes_only_state_and_record() -> None:
    proof = evidence(OLD)
    assert applied(
        step_at_rest(done(target=OLD), pool(), instant(epoch=5))
    ) == NodeApplyConfiguration(
        state="upgrade-required",
        driver_label=label_of(OLD),
        record=NodeRecord(
            node_uid="uid-node-1",
            epoch=5,
            token=TOKEN,
            pool=POOL,
            target=OLD,
            label=label_of(OLD),
            state="upgrade-required",
            since=NOW,
            boot_id=BOOT,
            evidence=proof,
        ),
    )


WISHES = {
    "another target": done(target=OLD),
    "its driver waits to load": done(safe_load=True),
    "a new kernel": done(kernel="6.8.0-48-generic", boot_id="boot-2"),
}


@pytest.mark.parametrize("case", WISHES)
def test_a_wanted_change_is_stamped_once(case: str) -> None:
    step = step_of(step_at_rest(WISHES[case]))
    assert record_of(step).state == "upgrade-required"
    assert isinstance(step_at_rest(apply_step(WISHES[case], step)), Candidate)


@pytest.mark.parametrize("case", WISHES)
def test_nothing_is_stamped_where_auto_upgrade_was_never_on(case: str) -> None:
    never = pool(constraints={"may_mark_required": False, "paused": "autoUpgrade is off"})
    assert isinstance(step_at_rest(WISHES[case], never), Candidate)


def test_a_skipped_node_is_stamped_but_not_for_a_missing_target() -> None:
    assert record_of(step_at_rest(done(target=OLD, skip=True))).state == "upgrade-required"
    outcome = wait_of(step_at_rest(done(target=OLD), pool("target-third")))
    assert outcome.code == "target-missing"


# The policy returns to the running target.


def test_a_stamp_is_withdrawn_when_the_proven_target_is_wanted_again() -> None:
    stamped = required(target=NEW)
    stamped = with_record(stamped, back_off_seconds=600.0, cause="x")
    step = step_at_rest(stamped)
    assert record_of(step) == NodeRecord(
        node_uid="uid-node-1",
        epoch=EPOCH,
        token=TOKEN,
        pool=POOL,
        target=NEW,
        label=label_of(NEW),
        state="upgrade-done",
        since=NOW,
        boot_id=BOOT,
        evidence=evidence(NEW),
    )
    assert isinstance(step, Step)
    assert step_at_rest(apply_step(stamped, step)) is None


def test_a_withdrawn_stamp_begins_no_new_attempt() -> None:
    stamped = with_record(required(target=NEW), edits=1)
    assert record_of(step_at_rest(stamped)).edits == 1


NOT_PROVEN_NOW = {
    "in another boot": required(target=NEW, boot_id="boot-2"),
    "of another run": required(target=NEW, driver_pods=(driver_pod(started=NOW - 60),)),
    "under an earlier token": required(
        target=NEW, record=record(state="upgrade-required", token=TOKEN + 1, evidence=evidence(NEW))
    ),
}


@pytest.mark.parametrize("case", NOT_PROVEN_NOW)
def test_done_is_written_only_on_a_proof_of_the_current_run(case: str) -> None:
    outcome = candidate_of(step_at_rest(NOT_PROVEN_NOW[case]))
    assert (outcome.operation, outcome.outside) == (Operation.VALIDATE, True)


def test_a_stamped_node_without_a_driver_pod_waits() -> None:
    outcome = wait_of(step_at_rest(required(target=NEW, driver_pods=())))
    assert outcome.code == "gate"


@pytest.mark.parametrize(
    "keeps",
    [{"asked": True}, {"evidence": None, "started": True}],
    ids=["a person asked", "it is broken"],
)
def test_a_requested_or_broken_stamp_is_not_withdrawn(keeps: dict[str, bool | None]) -> None:
    stamped = required(target=NEW)
    stamped = with_record(stamped, **keeps)
    if "evidence" in keeps:
        stamped = replace(stamped, components=idle_components())
    assert candidate_of(step_at_rest(stamped)).operation is Operation.SAME_LABEL


def test_an_earlier_proof_does_not_make_a_failed_node_done() -> None:
    """The node failed before its label moved; then the policy returned to the running target."""
    proof_record = record(
        state="upgrade-failed", evidence=evidence(OLD), cause="eviction: ml/train-0", unproven=True
    )
    broken = failed(
        target=OLD,
        record=proof_record,
        driver_label=label_of(OLD),
        components=idle_components(proven=label_of(OLD)),
    )
    third = pool("target-third", targets=(OLD, "target-third"))
    stamped = step_at_rest(broken, third)
    assert record_of(stamped).evidence == evidence(OLD)
    assert isinstance(stamped, Step)
    candidate = candidate_of(step_at_rest(apply_step(broken, stamped), pool(OLD)))
    assert candidate.operation is Operation.VALIDATE
    assert candidate_of(step_at_rest(broken, pool(OLD))).operation is Operation.VALIDATE


def wait_at_rest(view: NodeView, pool_view: PoolView | None = None) -> Wait:
    return wait_of(step_at_rest(view, pool_view or pool()))


@pytest.mark.parametrize(("ready", "validated"), [(True, True), (False, False)])
def test_a_matching_driver_is_only_validated_when_it_is_ready(
    *, ready: bool, validated: bool
) -> None:
    view = done(record=None, field_managers={}, driver_pods=(driver_pod(NEW, ready=ready),))
    outcome = candidate_of(step_at_rest(replace(view, components=idle_components())))
    assert (outcome.operation is Operation.VALIDATE) is validated


@pytest.mark.parametrize(("target", "runs"), [(OLD, OLD), ("", "another driver")])
def test_a_stamp_names_the_running_and_the_wanted_target(target: str, runs: str) -> None:
    outcome = step_of(step_at_rest(with_record(done(target=OLD), target=target)))
    assert runs in outcome.because
    assert NEW in outcome.because


def test_a_node_on_its_wanted_driver_waits_until_the_driver_is_ready() -> None:
    view = required(target=NEW, boot_id="boot-2", driver_pods=(driver_pod(NEW, ready=False),))
    assert wait_at_rest(view).code is WaitCode.DRIVER_START
    up = candidate_of(step_at_rest(replace(view, driver_pods=(driver_pod(NEW),))))
    assert up.operation is Operation.VALIDATE


@pytest.mark.parametrize(
    ("pod", "revalidated", "validated"),
    [
        (driver_pod(NEW), "", True),
        (driver_pod(NEW, ready=False), "", False),
        (driver_pod(NEW, started=None), "", False),
        (driver_pod(NEW), driver_pod(NEW).instance, False),
    ],
)
def test_an_unproven_driver_is_validated_once_and_then_brought_up_again(
    pod: DriverPod, revalidated: str, *, validated: bool
) -> None:
    view = with_record(required(target=NEW), evidence=None, revalidated=revalidated)
    view = replace(view, driver_pods=(pod,), components=idle_components())
    outcome = candidate_of(step_at_rest(view))
    assert (outcome.operation is Operation.VALIDATE) is validated


def passed(state: UpgradeState, before: NodeRecord, seconds: float, **changes: Any) -> NodeRecord:
    """Return the record that is written when a state has lasted this long."""
    view = replace(done(), record=before)
    after = replace(before, state=state, since=NOW + seconds, **changes)
    at = node_case(view, now=instant(NOW + seconds))
    change = NodeChange(because="so", record=after, lease=lease(), cordon=True)
    step = node_writes.write_step(at, change)
    written = only_action(step, WriteNode).applied.record
    assert written is not None
    return written


def test_a_record_keeps_how_long_each_state_of_an_upgrade_lasted() -> None:
    upgrading = record(
        state=S.POD_RESTART_REQUIRED, operation=Operation.UPGRADE, since=NOW, took={"x": 1.0}
    )
    moved = passed(S.VALIDATION_REQUIRED, upgrading, 200.04)
    assert moved.took == {"x": 1.0, "pod-restart-required": 200.0}
    assert passed(S.POD_RESTART_REQUIRED, upgrading, 9.0).took == {"x": 1.0}
    frozen = passed(S.VALIDATION_REQUIRED, upgrading, 200.0, frozen_seconds=150.0)
    assert frozen.took["pod-restart-required"] == 50.0


def test_a_record_keeps_apart_how_long_the_bring_up_took() -> None:
    starting = record(state=S.POD_RESTART_REQUIRED, operation=Operation.BRING_UP, since=NOW)
    moved = passed(S.VALIDATION_REQUIRED, starting, 90.0)
    assert moved.took == {"bring-up pod-restart-required": 90.0}
    assert passed(S.UPGRADE_FAILED, starting, 90.0).took == {}


def test_a_bring_up_keeps_how_long_of_the_restart_an_image_was_pulled() -> None:
    bring_up, upgrade = (
        record(state=S.POD_RESTART_REQUIRED, operation=operation)
        for operation in (Operation.BRING_UP, Operation.UPGRADE)
    )
    then = replace(bring_up, state=S.VALIDATION_REQUIRED)
    now = instant(bring_up.since + 90.0)
    assert time_taken(bring_up, then, now, pulled=30.0) == {
        "bring-up pod-restart-required": 90.0,
        "bring-up pull": 30.0,
    }
    assert time_taken(bring_up, then, now, pulled=400.0)["bring-up pull"] == 90.0
    assert time_taken(upgrade, then, now, pulled=30.0) == {"pod-restart-required": 90.0}


@pytest.mark.parametrize("state", [S.UPGRADE_FAILED, S.UPGRADE_REQUIRED])
def test_a_state_that_ends_otherwise_is_not_measured(state: UpgradeState) -> None:
    upgrading = record(state=S.POD_RESTART_REQUIRED, operation=Operation.UPGRADE, since=NOW)
    assert passed(state, upgrading, 1_800.0).took == {}


def test_other_operations_keep_what_the_upgrade_took() -> None:
    validating = record(
        state=S.VALIDATION_REQUIRED, operation=Operation.VALIDATE, since=NOW, took={"x": 1.0}
    )
    assert passed(S.UPGRADE_DONE, validating, 60.0, operation=None, took={}).took == {"x": 1.0}
