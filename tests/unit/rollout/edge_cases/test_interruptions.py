"""What turns a node back before the start, at the edges: for want of a purpose, or for a limit."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import Operation
from libs.policy.wanted import InstallMethod
from libs.rollout.views.machine import WorkloadPod
from libs.rollout.views.node import NodeView
from tests.unit.rollout.builders import NEW, NOW, OLD, evidence, granted, label_of, with_record
from tests.unit.rollout.in_flight.step_runner import in_flight, run_step, silenced, with_results
from tests.unit.rollout.in_flight.test_driver_restart_ends import removal
from tests.unit.rollout.in_flight.test_interruptions import KERNEL_6_9, THIRD, S, outcome_of, wide
from tests.unit.rollout.in_flight.test_lease_end import QUIET, quieted
from tests.unit.rollout.in_flight.test_lease_end import outcome_of as ends
from tests.unit.rollout.in_flight.test_validation import validating
from tests.unit.rollout.outcomes import record_in, step_of

POD = WorkloadPod(namespace="ml", name="train", uid="uid-train", gpu=True)


def released_node(**record: Any) -> NodeView:
    view = with_record(quieted(), **record)
    return with_results(run_step(view, step_of(ends(view, why="halted"))), *QUIET)


def test_a_removal_goes_on_where_there_is_no_driver_to_keep() -> None:
    record = {"operation": Operation.REMOVE, "target": "", "label": ""}
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, record=record)
    where = granted(wide(), view, target="")
    assert record_in(outcome_of(view, where)).state == S.UPGRADE_REQUIRED
    assert record_in(outcome_of(view, replace(where, builds={}))).state == S.POD_DELETION_REQUIRED
    brought = replace(where, method=InstallMethod.PRE_INSTALLED)
    assert record_in(outcome_of(view, brought)).state == S.POD_DELETION_REQUIRED


def test_a_node_of_unknown_variant_is_not_released() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, variant="")
    record = record_in(outcome_of(view, granted(wide(), view, target=THIRD)))
    assert record.state == S.POD_DELETION_REQUIRED


def test_a_missing_own_target_is_checked_at_the_start_only() -> None:
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED)
    where = replace(granted(wide(), view), builds={})
    assert record_in(outcome_of(view, where)).state == S.POD_DELETION_REQUIRED


def test_a_proof_for_another_label_is_no_reason_to_stop() -> None:
    proof = evidence(THIRD)
    view = in_flight(S.WAIT_FOR_JOBS_REQUIRED, record={"evidence": proof})
    record = record_in(outcome_of(view, granted(wide(), view, target=OLD)))
    assert (record.state, record.target) == (S.WAIT_FOR_JOBS_REQUIRED, OLD)


def test_a_released_reinstall_of_the_same_label_is_not_done() -> None:
    view = released_node(operation=Operation.SAME_LABEL, target=OLD, label=label_of(OLD))
    record = record_in(outcome_of(view, granted(wide(), view, target=OLD)))
    assert (record.state, record.back_off_seconds) == (S.UPGRADE_REQUIRED, 600.0)


QUIESCE = "quiesce: a component did not let go of the devices in time"
LATE = {"deadline": NOW - 1}


@pytest.mark.parametrize(
    ("record", "view", "silence", "cause"),
    [
        ({}, {}, (), QUIESCE),
        (LATE, {}, (), QUIESCE),
        ({"state": S.WAIT_FOR_JOBS_REQUIRED}, {}, (), QUIESCE),
        ({"state": S.WAIT_FOR_JOBS_REQUIRED, **LATE}, {}, (), "jobs: they did not end in time"),
        ({}, {"pods": (POD,)}, (), QUIESCE),
        (LATE, {"pods": (POD,)}, (), "eviction: pods did not leave in time"),
        ({}, {}, ("driver",), "agent-silent: its driver agent is silent"),
        ({}, {"ready": False}, (), QUIESCE),
        (LATE, {"ready": False}, (), "not-ready: the Node did not become Ready in time"),
    ],
)
def test_the_cause_of_a_release_follows_from_the_passed_limit(
    record: dict[str, Any], view: dict[str, Any], silence: tuple[str, ...], cause: str
) -> None:
    node = silenced(replace(with_record(released_node(), **record), **view), *silence)
    assert record_in(ends(node)).cause == cause


def test_a_release_without_a_driver_agent_reports_it_as_silent() -> None:
    view = released_node()
    parts = {name: part for name, part in view.components.items() if name != "driver"}
    record = record_in(ends(replace(view, components=parts)))
    assert record.cause == "agent-silent: its driver agent is silent"


def test_a_mere_validation_keeps_its_label_in_another_variant() -> None:
    view = validating({"operation": Operation.VALIDATE, "started": False})
    step = step_of(outcome_of(replace(view, boot_id="boot-2", variant=KERNEL_6_9)))
    assert record_in(step).label == label_of(NEW)


def test_a_removal_keeps_its_empty_label_in_another_variant() -> None:
    view = replace(removal(), boot_id="boot-2", variant=KERNEL_6_9)
    assert record_in(outcome_of(view, granted(wide(), view, target=""))).label == ""
