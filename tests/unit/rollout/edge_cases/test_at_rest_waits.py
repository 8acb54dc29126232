"""Nodes at rest at the edges: which pods go, when a driver counts as restarting, what is left."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import NodeRecord, NodeRequest, Operation
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
    node,
    pool,
    required,
)


def with_record(view: NodeView, **changes: Any) -> NodeView:
    assert isinstance(view.record, NodeRecord)
    return replace(view, record=replace(view.record, **changes))


def wait_of(view: NodeView, where: PoolView | None = None) -> Wait:
    outcome = step_at_rest(view, where or pool(), instant())
    assert isinstance(outcome, Wait), outcome
    return outcome


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
    assert wait_of(view).code is WaitCode.DRIVER_START


@pytest.mark.parametrize(
    ("trouble", "said"),
    [("", "within an hour"), ("CrashLoopBackOff", "within an hour: CrashLoopBackOff")],
)
def test_a_restarting_driver_reports_its_trouble(trouble: str, said: str) -> None:
    restarts = (NOW - 3.0, NOW - 2.0, NOW - 1.0)
    pod = driver_pod(NEW, started=NOW - 1.0, trouble=trouble)
    wait = wait_of(replace(with_record(done(), restarts=restarts), driver_pods=(pod,)))
    assert wait.detail.endswith(said)


@pytest.mark.parametrize(
    ("pod", "until"),
    [
        (driver_pod(NEW, ready=False, started=NOW - 5, trouble="OOMKilled"), None),
        (driver_pod(NEW, ready=False, started=None, trouble="OOMKilled"), None),
    ],
)
def test_what_is_in_trouble_waits_for_whoever_looks_after_it(
    pod: DriverPod, until: float | None
) -> None:
    view = replace(with_record(done(), restarts=(NOW - 5,)), driver_pods=(pod,))
    wait = wait_of(view)
    assert (wait.code, wait.detail, wait.until) == (WaitCode.DRIVER_START, "OOMKilled", until)


@pytest.mark.parametrize(
    ("why", "said"), [("the label differs", "the label differs"), ("", "its driver pod waits")]
)
def test_a_gate_that_says_why_is_quoted(why: str, said: str) -> None:
    view = done(driver_pods=(driver_pod(NEW, ready=False, started=None),))
    assert view.gate is not None
    wait = wait_of(replace(view, gate=replace(view.gate, why=why)))
    assert wait.detail.startswith(said)


# Where no driver is to be.


def test_nothing_is_brought_for_a_policy_that_is_gone_and_nothing_has_to_be_taken_away() -> None:
    gone = replace(pool(), gone=True)
    assert step_at_rest(node(), gone, instant()) is None
    assert wait_of(required(), gone).code is WaitCode.POLICY_GONE


@pytest.mark.parametrize(
    ("cause", "said"), [("busy: pid 1", "busy: pid 1"), ("", "its removal failed")]
)
def test_a_failed_removal_reports_its_cause(cause: str, said: str) -> None:
    view = with_record(failed(excluded=True), operation=Operation.REMOVE, cause=cause, attempt=9)
    assert wait_of(view).detail == said


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
    outcome = step_at_rest(replace(view, components=idle_components()), pool(), instant())
    assert isinstance(outcome, Candidate)
    assert (outcome.operation is Operation.VALIDATE) is validated


@pytest.mark.parametrize(("target", "runs"), [(OLD, OLD), ("", "another driver")])
def test_a_stamp_names_the_running_and_the_wanted_target(target: str, runs: str) -> None:
    outcome = step_at_rest(with_record(done(target=OLD), target=target), pool(), instant())
    assert isinstance(outcome, Step)
    assert outcome.because == f"it runs {runs}, and its policy wants {NEW}"


def test_a_pre_installed_driver_is_validated_in_a_new_kernel() -> None:
    view = done(kernel="6.9", driver_pods=())
    where = replace(pool(), method=InstallMethod.PRE_INSTALLED)
    outcome = step_at_rest(view, where, instant())
    assert isinstance(outcome, Candidate)
    assert outcome.operation is Operation.VALIDATE
    stamped = step_at_rest(done(kernel="6.9"), pool(), instant())
    assert isinstance(stamped, Step)
    assert "and it runs 6.9" in stamped.because


def test_a_node_on_its_wanted_driver_waits_until_the_driver_is_ready() -> None:
    view = required(target=NEW, boot_id="boot-2", driver_pods=(driver_pod(NEW, ready=False),))
    assert wait_of(view).code is WaitCode.DRIVER_START
    up = step_at_rest(replace(view, driver_pods=(driver_pod(NEW),)), pool(), instant())
    assert isinstance(up, Candidate)
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
    outcome = step_at_rest(view, pool(), instant())
    assert isinstance(outcome, Candidate)
    assert (outcome.operation is Operation.VALIDATE) is validated
