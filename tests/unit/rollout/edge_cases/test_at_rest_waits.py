"""Nodes at rest at the edges: which pods go, when a driver counts as restarting, what is left."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import NodeRequest, Operation
from libs.contracts.waits import WaitCode
from libs.policy.kinds.upgrade_policy import Drain, PodDeletion
from libs.policy.wanted import InstallMethod
from libs.rollout.at_rest import preflight_check, step_at_rest
from libs.rollout.decision import Candidate, Step, Wait
from libs.rollout.views.machine import DriverPod, WorkloadPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    HOUR,
    NEW,
    NOW,
    OLD,
    build,
    done,
    driver_pod,
    failed,
    idle_components,
    instant,
    label_of,
    pool,
    required,
    with_record,
)
from tests.unit.rollout.outcomes import candidate_of, step_of, wait_of


def wait_at_rest(view: NodeView, where: PoolView | None = None) -> Wait:
    return wait_of(step_at_rest(view, where or pool(), instant()))


def test_which_operations_need_a_preflight() -> None:
    asked = {one for one in Operation if preflight_check.needs_preflight(required(), one)}
    assert asked == set(Operation) - {Operation.VALIDATE, Operation.RESTART}
    waived = required(request=NodeRequest.WITHOUT_PREFLIGHT)
    assert not any(preflight_check.needs_preflight(waived, one) for one in Operation)


DRAINS = Drain(enable=True)
FORCES = PodDeletion(force=True)


@pytest.mark.parametrize(
    ("pod", "upgrade", "goes"),
    [
        ({}, {}, False),
        ({"deleting": True}, {}, True),
        ({"job": True}, {}, True),
        ({"gpu": True}, {}, True),
        ({"gpu": True, "bare": True}, {}, False),
        ({"gpu": True, "bare": True}, {"pod_deletion": FORCES}, True),
        ({"drained": True}, {}, False),
        ({"drained": True}, {"drain": DRAINS}, True),
        ({"drained": True, "bare": True}, {"drain": DRAINS}, False),
        ({"bare": True}, {"drain": DRAINS, "pod_deletion": FORCES}, False),
        ({}, {"drain": DRAINS}, False),
    ],
)
def test_which_pods_a_preflight_counts_as_removed(
    pod: dict[str, Any], upgrade: dict[str, Any], *, goes: bool
) -> None:
    there = replace(WorkloadPod(namespace="ml", name="w", uid="uid-w"), **pod)
    view = required(pods=(there,), driver_pods=())
    asked = preflight_check.build_check(view, pool(upgrade=upgrade), build())
    assert asked.removes_pods == (("uid-w",) if goes else ())


@pytest.mark.parametrize(
    ("moments", "waits"),
    [((-3.0, -2.0, -1.0), True), ((-HOUR + 1, -2.0, -1.0), True), ((-HOUR, -2.0, -1.0), False)],
)
def test_three_restarts_within_an_hour_stop_revalidation(
    moments: tuple[float, ...], *, waits: bool
) -> None:
    restarts = tuple(NOW + one for one in moments)
    view = with_record(done(), restarts=restarts)
    view = replace(view, driver_pods=(driver_pod(NEW, started=NOW - 1.0),))
    outcome = step_at_rest(view, pool(), instant())
    assert (isinstance(outcome, Wait) and outcome.code is WaitCode.DRIVER_RESTARTING) is waits


def test_a_driver_that_is_briefly_not_ready_has_not_restarted() -> None:
    view = done(driver_pods=(driver_pod(NEW, ready=False, started=NOW - HOUR + 0.5),))
    assert wait_at_rest(view).code is WaitCode.DRIVER_START


@pytest.mark.parametrize(
    ("trouble", "said"),
    [("", "within an hour"), ("CrashLoopBackOff", "within an hour: CrashLoopBackOff")],
)
def test_a_restarting_driver_reports_its_trouble(trouble: str, said: str) -> None:
    restarts = (NOW - 3.0, NOW - 2.0, NOW - 1.0)
    pod = driver_pod(NEW, started=NOW - 1.0, trouble=trouble)
    wait = wait_at_rest(replace(with_record(done(), restarts=restarts), driver_pods=(pod,)))
    assert wait.detail.endswith(said)


# Where no driver is to be.


@pytest.mark.parametrize(
    ("cause", "said"), [("busy: pid 1", "busy: pid 1"), ("", "its removal failed")]
)
def test_a_failed_removal_reports_its_cause(cause: str, said: str) -> None:
    view = with_record(failed(excluded=True), operation=Operation.REMOVE, cause=cause, attempt=9)
    assert wait_at_rest(view).detail == said


@pytest.mark.parametrize(("label", "removed"), [(label_of(OLD), True), ("", False)])
def test_a_driver_label_alone_requires_a_removal(label: str, *, removed: bool) -> None:
    told = idle_components()
    view = required(excluded=True, driver_label=label, components=told)
    view = with_record(view, evidence=None, started=False)
    outcome = step_at_rest(view, pool(), instant())
    assert isinstance(outcome, Candidate if removed else Step)


# What is wanted.


@pytest.mark.parametrize(("ready", "validated"), [(True, True), (False, False)])
def test_a_matching_driver_is_only_validated_when_it_is_ready(
    *, ready: bool, validated: bool
) -> None:
    view = done(record=None, field_managers={}, driver_pods=(driver_pod(NEW, ready=ready),))
    outcome = candidate_of(
        step_at_rest(replace(view, components=idle_components()), pool(), instant())
    )
    assert (outcome.operation is Operation.VALIDATE) is validated


@pytest.mark.parametrize(("target", "runs"), [(OLD, OLD), ("", "another driver")])
def test_a_stamp_names_the_running_and_the_wanted_target(target: str, runs: str) -> None:
    outcome = step_of(step_at_rest(with_record(done(target=OLD), target=target), pool(), instant()))
    assert outcome.because == f"it runs {runs}, and its policy wants {NEW}"


def test_a_pre_installed_driver_is_validated_in_a_new_kernel() -> None:
    view = done(kernel="6.9", driver_pods=())
    where = replace(pool(), method=InstallMethod.PRE_INSTALLED)
    assert candidate_of(step_at_rest(view, where, instant())).operation is Operation.VALIDATE
    stamped = step_of(step_at_rest(done(kernel="6.9"), pool(), instant()))
    assert "and it runs 6.9" in stamped.because


def test_a_node_on_its_wanted_driver_waits_until_the_driver_is_ready() -> None:
    view = required(target=NEW, boot_id="boot-2", driver_pods=(driver_pod(NEW, ready=False),))
    assert wait_at_rest(view).code is WaitCode.DRIVER_START
    up = candidate_of(
        step_at_rest(replace(view, driver_pods=(driver_pod(NEW),)), pool(), instant())
    )
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
    outcome = candidate_of(step_at_rest(view, pool(), instant()))
    assert (outcome.operation is Operation.VALIDATE) is validated
