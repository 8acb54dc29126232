"""Node writes are complete, and a record belongs to one Node uid."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.node import MANAGER, LeaseOwner, Operation, UpgradeState
from libs.rollout import node_writes
from libs.rollout.decision import WriteNode, WriteSlot
from libs.rollout.slots import idle_command
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import MalformedAnnotation, NodeField
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    SOURCES,
    done,
    driver_pod,
    instant,
    lease,
    node,
    pool,
    record,
)
from tests.unit.rollout.outcomes import only_action

S = UpgradeState


def test_record_and_lease_of_an_earlier_node_are_void() -> None:
    assert node_writes.current_record(node(record=record())) == record()
    assert node_writes.current_record(node(record=record(node_uid="old"))) is None
    assert node_writes.current_record(node(record=MalformedAnnotation("not JSON"))) is None
    assert node_writes.current_lease(node(lease=lease())) == lease()
    assert node_writes.current_lease(node(lease=lease(node_uid="old"))) is None
    assert node_writes.upgrade_lease(node(lease=lease(owner=LeaseOwner.REPAIR))) is None
    assert node_writes.upgrade_lease(node(lease=lease())) == lease()


def test_a_write_is_guarded_and_complete() -> None:
    view = done(initially_cordoned=True)
    step = node_writes.write_step(
        view, record(), instant(), because="so", lease=lease(), cordon=True
    )
    write = only_action(step, WriteNode)
    assert (write.uid, write.revision, write.lowers_capacity) == (view.uid, view.revision, False)
    applied = write.applied
    assert applied.state == S.WAIT_FOR_JOBS_REQUIRED
    assert (applied.driver_label, applied.initially_cordoned) == (view.driver_label, True)
    assert (applied.lease, applied.record, applied.unschedulable) == (lease(), record(), True)


def test_a_write_that_lowers_capacity_names_its_sources() -> None:
    step = node_writes.write_step(
        node(), record(), instant(), because="so", lease=lease(), cordon=True, lowers_capacity=True
    )
    write = only_action(step, WriteNode)
    assert write.applied.record is not None
    assert write.applied.record.seen == dict.fromkeys(SOURCES, "100")


def test_slot_writes_precede_the_node_write() -> None:
    view = done()
    sent = idle_command(view, "plugin", instant(), token=8)
    step = node_writes.write_step(
        view, None, instant(), because="so", lease=None, cordon=None, before=(sent,)
    )
    assert [type(action) for action in step.actions] == [WriteSlot, WriteNode]


@pytest.mark.parametrize(
    ("cordoned", "owners", "kept"),
    [(True, (MANAGER,), True), (True, ("me",), None), (False, (MANAGER,), None)],
)
def test_a_cordon_of_ours_is_kept(
    cordoned: bool, owners: tuple[str, ...], kept: bool | None
) -> None:
    view = node(cordoned=cordoned, field_managers={NodeField.CORDON: owners})
    assert node_writes.unchanged_cordon(view) is kept


@pytest.mark.parametrize("operation", Operation)
def test_which_operations_cordon(operation: Operation) -> None:
    harmless = operation in (Operation.BRING_UP, Operation.VALIDATE)
    assert node_writes.needs_cordon(record(operation=operation)) != harmless


def test_a_new_state_has_this_boot_and_its_deadline() -> None:
    where = pool(standing={"frozen_seconds": 7.0})
    had = record(deadline_renewed=True, epoch=1, boot_id="boot-0")
    written = node_writes.record_in_state(
        S.VALIDATION_REQUIRED, had, node(), where, instant(), paused=False
    )
    assert (written.state, written.since, written.deadline) == (
        S.VALIDATION_REQUIRED,
        NOW,
        NOW + 600,
    )
    assert (written.boot_id, written.epoch, written.frozen_seconds) == (
        "boot-1",
        3,
        7.0,
    )
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
    had: Any = record(operation=operation, paused=paused, evidence=view.evidence, edits=0)
    written = node_writes.record_for_restart(view, had, pool(), instant(), edits=1)
    assert (written.state, written.since, written.deadline) == (
        S.POD_RESTART_REQUIRED,
        NOW,
        NOW + 1800,
    )
    assert (written.old_pod_uid, written.evidence, written.edits) == (
        f"pod-{NEW}-node-1",
        None,
        1,
    )
    assert written.paused == then
    bare = replace(view, driver_pods=())
    kept = node_writes.record_for_restart(bare, replace(had, old_pod_uid="was"), pool(), instant())
    assert kept.old_pod_uid == "was"
