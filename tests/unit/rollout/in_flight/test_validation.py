"""Step 8: components resume, the validator runs, and matching evidence ends the lease."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Order, Proven, Quiesce, Swap, Validate
from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.node import SAFE_LOAD_ANNOTATION, NodeRecord, Operation, UpgradeState
from libs.contracts.reports import Resource, ValidationStep
from libs.contracts.waits import DRIVER_ADMINISTRATOR, WaitCode
from libs.fleet.node import DriverState, driver_state
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import NodeOutcome, Step, Wait, WriteNode
from libs.rollout.views.fleet import SourceState
from libs.rollout.views.node import NodeView
from tests.unit.rollout.builders import (
    HOUR,
    KERNEL,
    NEW,
    NOW,
    command,
    component,
    driver_pod,
    granted,
    install_of,
    instant,
    label_of,
    on_host,
    pool,
    proven_of,
    slot_in,
    with_record,
    without_component,
)
from tests.unit.rollout.in_flight.builders import QUIET, outcome_of
from tests.unit.rollout.in_flight.step_runner import (
    TOKEN,
    at_phase,
    in_flight,
    proof,
    run_step,
    silenced,
    with_beats,
    with_component,
    with_results,
)
from tests.unit.rollout.outcomes import node_write, record_in, slot_writes, step_of, wait_of

S = UpgradeState
END = NOW + 540
POD = f"pod-{NEW}-node-1"


CRASHING = driver_pod(NEW, ready=False, trouble="CrashLoopBackOff: back-off")


def ready(record: dict[str, Any] | None = None, **changes: Any) -> NodeView:
    swap = Swap(label=label_of(NEW), old_pod_uid="pod-target-old-node-1")
    parts = {
        "driver": component(command(swap, order=(TOKEN, 1), deadline=NOW - 90 + 120)),
        **{name: component(command(Quiesce(), order=(TOKEN, 1))) for name in QUIET},
    }
    shown: dict[str, Any] = {"components": parts, **changes}
    view = in_flight(S.VALIDATION_REQUIRED, record={"deadline": END, **(record or {})}, **shown)
    return with_results(view, "driver", *QUIET)


def validating(record: dict[str, Any] | None = None, **changes: Any) -> NodeView:
    view = ready(record, **changes)
    return run_step(view, step_of(outcome_of(view)))


def resumed() -> NodeView:
    """Return a node whose validator has got to the plugin, which may offer the GPUs."""
    view = validating()
    return run_step(view, step_of(outcome_of(at_phase(view, "validator", "plugin"))))


def proven(*, shown: Mapping[str, int] | None = None, **changes: Any) -> NodeView:
    """Return a node with evidence, whose Node has these devices."""
    view = replace(resumed(), allocatable=shown or {})
    return with_results(proof(view, NOW, **changes), "validator")


def failing_with(outcome: NodeOutcome, view: NodeView, at: float = NOW) -> NodeRecord:
    step = step_of(outcome)
    assert slot_writes(step)["driver"] == Idle()
    return record_in(outcome_of(with_results(run_step(view, step), "driver"), at))


def test_components_resume_and_the_validator_gets_this_pod() -> None:
    step = step_of(outcome_of(ready()))
    assert slot_writes(step) == {
        "telemetry": Idle(),
        "discovery": Idle(),
        "validator": Validate(
            label=label_of(NEW),
            install_digest=install_of(NEW),
            pod_uid=POD,
            started=NOW - HOUR,
            plugin=True,
        ),
    }
    slot = slot_in(run_step(ready(), step), "validator")
    assert (slot.order, slot.deadline) == (Order(TOKEN, 2), END)


def without_plugin(view: NodeView) -> NodeView:
    components = {name: each for name, each in view.components.items() if name != "plugin"}
    return replace(view, components=components)


@pytest.mark.parametrize("operation", [Operation.BRING_UP, Operation.UPGRADE, Operation.MIG])
def test_the_plugin_resumes_when_cuda_works(operation: Operation) -> None:
    view = ready({"operation": operation})
    step = step_of(outcome_of(view))
    assert "plugin" not in slot_writes(step)
    view = run_step(view, step)
    for phase in ("toolkit", "cuda"):
        assert wait_of(outcome_of(at_phase(view, "validator", phase))).code == WaitCode.VALIDATION
    assert slot_writes(outcome_of(at_phase(view, "validator", "plugin"))) == {"plugin": Idle()}


def test_a_quiesced_plugin_learns_another_configuration_when_it_resumes() -> None:
    view = run_step(ready(), step_of(outcome_of(ready())))
    labelled = replace(at_phase(view, "validator", "cuda"), plugin_config="shared")
    assert slot_in(labelled, "plugin").open() == Quiesce()
    assert wait_of(outcome_of(labelled)).code == WaitCode.VALIDATION
    step = step_of(outcome_of(at_phase(labelled, "validator", "plugin")))
    assert slot_writes(step) == {"plugin": Idle(config="shared")}


def test_by_the_proof_of_a_validator_without_that_step_the_plugin_resumes_too() -> None:
    view = with_results(proof(validating(), NOW), "validator")
    step = step_of(outcome_of(view))
    assert slot_writes(step) == {"plugin": Idle()}
    assert node_write(outcome_of(run_step(view, step))).applied.state == S.UPGRADE_DONE


def with_claims(view: NodeView) -> NodeView:
    """Return the node with the plugin for claims instead of the device plugin."""
    components = {
        "dra" if name == "plugin" else name: each for name, each in view.components.items()
    }
    return replace(view, components=components)


def test_the_plugin_for_claims_resumes_by_the_proof_and_not_before() -> None:
    view = with_claims(ready())
    step = step_of(outcome_of(view))
    sent = slot_writes(step)
    assert set(sent) == {"telemetry", "discovery", "validator"}
    assert isinstance(sent["validator"], Validate)
    assert not sent["validator"].plugin
    view = run_step(view, step)
    assert wait_of(outcome_of(at_phase(view, "validator", "cuda"))).code == WaitCode.VALIDATION
    view = with_results(proof(view, NOW), "validator")
    step = step_of(outcome_of(view))
    assert slot_writes(step) == {"dra": Idle()}
    assert node_write(outcome_of(run_step(view, step))).applied.state == S.UPGRADE_DONE


@pytest.mark.parametrize("sent", [False, True])
def test_a_node_without_our_plugin_is_proven_without_it(*, sent: bool) -> None:
    body = slot_writes(outcome_of(without_plugin(validating() if sent else ready())))["validator"]
    assert isinstance(body, Validate)
    assert not body.plugin


OFFERED = (Resource(name="nvidia.com/mig-1g.10gb", count=7),)


@pytest.mark.parametrize("shown", [{}, {"nvidia.com/gpu": 8}, {"nvidia.com/mig-1g.10gb": 6}])
def test_a_node_waits_until_its_devices_are_allocatable(shown: dict[str, int]) -> None:
    view = proven(allocatable=OFFERED, shown=shown)
    wait = wait_of(outcome_of(view))
    assert wait.code == WaitCode.VALIDATION
    count = shown.get("nvidia.com/mig-1g.10gb", 0)
    assert wait.detail == (
        "plugin: the kubelet can give 7 nvidia.com/mig-1g.10gb to pods, and has"
        f" {count} in the allocatable resources of the Node"
    )
    overdue = with_beats(view, END)
    cause = failing_with(outcome_of(overdue, END), overdue, END).cause
    assert cause == f"validation: {wait.detail}: see the log of the kubelet"


def test_a_node_is_released_with_allocatable_devices() -> None:
    view = proven(allocatable=OFFERED, shown={"nvidia.com/mig-1g.10gb": 7})
    applied = node_write(outcome_of(view)).applied
    assert applied.state == S.UPGRADE_DONE
    assert applied.record is not None
    assert applied.record.evidence is not None
    assert applied.record.evidence.allocatable == ()


def test_a_plugin_that_never_offers_fails_the_validation_by_name() -> None:
    problem = "pods cannot have GPU-0: the device plugin has offered no GPU to the kubelet"
    view = with_beats(at_phase(resumed(), "validator", "plugin", problem), END)
    assert failing_with(outcome_of(view, END), view, END).cause == f"validation: plugin: {problem}"


def test_progress_of_another_op_resumes_no_plugin() -> None:
    view = ready()
    view = run_step(view, step_of(outcome_of(view)))
    stale = at_phase(view, "validator", "plugin")
    progress = stale.components["validator"].progress
    assert progress is not None
    part = replace(stale.components["validator"], progress=replace(progress, op=1))
    assert wait_of(outcome_of(with_component(stale, "validator", part))).code == WaitCode.VALIDATION


@pytest.mark.parametrize(
    ("change", "code", "detail"),
    [
        ("begun", WaitCode.VALIDATION, "cuda: vectorAdd"),
        ("not begun", WaitCode.VALIDATION, "validator"),
        ("silent", WaitCode.VALIDATION, "validator"),
        ("no driver", WaitCode.DRIVER_START, "ready for validation (CrashLoopBackOff: back-off)"),
        ("no validator", WaitCode.VALIDATION, "no validator"),
    ],
)
def test_what_validation_waits_for(change: str, code: WaitCode, detail: str) -> None:
    view = validating()
    if change == "begun":
        view = at_phase(view, "validator", "cuda", "vectorAdd")
    elif change == "silent":
        view = silenced(view, "validator")
    elif change == "no driver":
        view = replace(view, driver_pods=(CRASHING,))
    elif change == "no validator":
        view = without_component(view, "validator")
    wait = wait_of(outcome_of(view))
    assert (wait.code, wait.until) == (code, END)
    assert detail in wait.detail


# What counts as evidence (docs/invariants.md#i3).


def test_matching_evidence_releases_the_node() -> None:
    view = proven()
    step = step_of(outcome_of(view))
    sent = Idle(proven=proven_of(NEW))
    assert slot_writes(step) == {"driver": sent, "validator": sent}
    applied = node_write(step).applied
    assert (applied.state, applied.lease, applied.unschedulable) == (S.UPGRADE_DONE, None, None)
    assert applied.record is not None
    assert applied.record.evidence == view.evidence


@pytest.mark.parametrize(
    "other",
    [
        {"node_uid": "another"},
        {"boot_id": "boot-0"},
        {"kernel": "5.15"},
        {"label": "another"},
        {"driver_pod_uid": "another"},
        {"driver_started": NOW - 1e6},
        {"token": TOKEN - 1},
        {"op": 1},
        {"op": 9},
    ],
    ids=lambda other: next(iter(other)),
)
def test_evidence_that_differs_in_anything_proves_nothing(other: dict[str, Any]) -> None:
    outcome = outcome_of(proven(**other))
    written = [a for a in getattr(outcome, "actions", ()) if type(a).__name__ == "WriteNode"]
    assert not written


@pytest.mark.parametrize(
    "change",
    [
        {"driver_pods": (driver_pod(NEW, ready=False),)},
        {"driver_pods": (driver_pod(NEW, deleting=True),)},
        {"driver_pods": ()},
        {"driver_pods": (driver_pod(NEW, started=None),)},
        {"loaded": None},
    ],
)
def test_a_driver_that_is_gone_keeps_the_lease(change: dict[str, Any]) -> None:
    wait = wait_of(outcome_of(replace(proven(), **change)))
    assert wait.code in (WaitCode.DRIVER_START, WaitCode.VALIDATION)


def test_a_driver_that_restarted_meanwhile_is_validated_again() -> None:
    view = replace(proven(), driver_pods=(driver_pod(NEW, started=NOW - 5, restarts=1),))
    step = step_of(outcome_of(view))
    assert isinstance(slot_writes(step)["validator"], Validate)
    slot = slot_in(run_step(view, step), "validator")
    assert slot.order == Order(TOKEN, 3)


@pytest.mark.parametrize(
    ("age", "probed", "probes", "wake_in"),
    [
        (11.0, None, ("pods",), 10.0),
        (11.0, 12.0, ("pods",), 10.0),
        (15.0, 4.0, (), 6.0),
        (500.0, 10.0, ("pods",), 10.0),
    ],
    ids=["never probed", "probed before", "probe pending", "probe not answered"],
)
@pytest.mark.parametrize("at", [NOW, END + 1])
def test_old_data_on_driver_pods_is_probed_before_a_release(
    age: float, probed: float | None, probes: tuple[str, ...], wake_in: float, at: float
) -> None:
    """Even past the deadline the node neither returns nor fails."""
    view = proven()
    sources = {**instant(at).visibility.sources, **pods_proved(at, age, probed)}
    step = step_of(outcome_of(view, at, sources=sources))
    assert (step.actions, step.probes, step.wake_at) == ((), probes, at + wake_in)
    assert step.wait is not None
    assert (step.wait.code, step.wait.detail) == (
        WaitCode.STALE,
        "waiting for current data on the driver pods before the release",
    )


def test_data_of_ten_seconds_is_current_enough_for_a_release() -> None:
    sources = {**instant().visibility.sources, **pods_proved(NOW, 10.0, None)}
    assert node_write(outcome_of(proven(), sources=sources)).applied.state == S.UPGRADE_DONE


def pods_proved(at: float, age: float, probed: float | None) -> dict[str, SourceState]:
    """Return the source of driver pods, proved and probed so many seconds ago."""
    probed_at = None if probed is None else at - probed
    return {"pods": SourceState(proved=at - age, revision="100", probed=probed_at)}


def test_evidence_without_the_end_of_its_op_is_awaited() -> None:
    assert wait_of(outcome_of(proof(validating(), NOW))).code == WaitCode.VALIDATION


def test_an_unanswered_swap_keeps_the_lease() -> None:
    view = proven()
    driver = replace(view.components["driver"], result=None)
    assert wait_of(outcome_of(with_component(view, "driver", driver))).code == WaitCode.VALIDATION


def test_a_release_after_a_conflict_repeats_no_command() -> None:
    view = proven()
    step = step_of(outcome_of(view))
    without_last = replace(step, actions=step.actions[:-1])
    partial = run_step(view, without_last)
    next_step = step_of(outcome_of(partial))
    assert len(next_step.actions) == 1
    assert node_write(next_step).applied.state == S.UPGRADE_DONE
    rebooted = replace(partial, boot_id="boot-2", loaded=None)
    assert record_in(outcome_of(rebooted)).state == S.POD_RESTART_REQUIRED


def test_an_idle_for_another_label_is_not_taken_for_ours() -> None:
    view = proven()
    step = step_of(outcome_of(view))
    partial = run_step(view, replace(step, actions=step.actions[:-1]))
    sent = partial.components["validator"]
    slot = sent.slot
    assert slot is not None
    other = command(Idle(proven=Proven(label="x", kernel=KERNEL)), order=(slot.token, slot.op))
    partial = with_component(partial, "validator", replace(sent, slot=other))
    assert isinstance(slot_writes(outcome_of(partial))["validator"], Validate)


# Failures.


@pytest.mark.parametrize(
    ("steps", "cause"),
    [
        (
            (
                ValidationStep(name="driver", passed=True),
                ValidationStep(name="cuda", passed=False, message="no device"),
            ),
            "validation: cuda: no device",
        ),
        ((ValidationStep(name="cuda", passed=False),), "validation: cuda"),
        ((), "validation: "),
    ],
)
def test_a_failed_check_is_the_cause(steps: tuple[ValidationStep, ...], cause: str) -> None:
    view = proven(passed=False, steps=steps)
    record = failing_with(outcome_of(view), view)
    assert record.state == S.UPGRADE_FAILED
    assert record.cause.startswith(cause)
    assert (record.evidence, record.revalidated) == (None, view.driver_pods[0].instance)
    assert (record.started, driver_state(record)) == (True, DriverState.RUNS)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ("hangs", "validation: cuda"),
        ("silent", "validation: the validator "),
        (
            "no driver",
            "driver-start: the driver is not ready any more (CrashLoopBackOff: back-off)",
        ),
        ("other boot", "boot boot-0"),
    ],
)
def test_the_validation_limit_reports_what_was_missing(change: str, cause: str) -> None:
    view = with_beats(validating(), END)
    if change == "hangs":
        view = at_phase(view, "validator", "cuda")
    elif change == "silent":
        view = silenced(view, "validator")
    elif change == "no driver":
        view = replace(view, driver_pods=(CRASHING,))
    else:
        view = proof(view, NOW, boot_id="boot-0")
    assert cause in failing_with(outcome_of(view, END), view, END).cause


def test_three_driver_restarts_fail_a_validation() -> None:
    view = replace(validating(), driver_pods=(driver_pod(NEW, restarts=3),))
    assert failing_with(outcome_of(view), view).cause.endswith(" 3 times")


KILLED = "exited with code 137, and its log ends: insmod: killed"


@pytest.mark.parametrize(
    ("operation", "before"),
    [(Operation.VALIDATE, {POD: 7}), (Operation.MIG, {POD: 7}), (Operation.VALIDATE, None)],
    ids=["validation", "division", "validation that an earlier release began"],
)
def test_earlier_restarts_do_not_fail_an_operation_that_keeps_the_driver(
    operation: Operation, before: dict[str, int] | None
) -> None:
    view = validating({"operation": operation, "restarts_before": before})
    view = replace(view, driver_pods=(driver_pod(NEW, restarts=7, last_exit=KILLED),))
    wait = wait_of(outcome_of(view))
    assert (wait.code, "restarted" in wait.detail) == (WaitCode.VALIDATION, False)


@pytest.mark.parametrize("operation", [Operation.VALIDATE, Operation.MIG, Operation.UPGRADE])
def test_a_driver_that_crashes_during_its_validation_is_named_at_once_and_fails_it(
    operation: Operation,
) -> None:
    view = validating({"operation": operation, "restarts_before": {POD: 4}})
    again = driver_pod(NEW, ready=False, restarts=5, last_exit=KILLED)
    wait = wait_of(outcome_of(replace(view, driver_pods=(again,))))
    assert (wait.code, wait.detail) == (
        WaitCode.DRIVER_START,
        f"waiting for the driver to become ready for validation (the driver container {KILLED})",
    )
    assert wait.who == DRIVER_ADMINISTRATOR
    running = replace(view, driver_pods=(replace(again, ready=True),))
    wait = wait_of(outcome_of(running))
    assert wait.code == WaitCode.VALIDATION
    assert wait.detail.endswith(f" (the driver container restarted once: it {KILLED})")
    crashing = replace(again, restarts=7, started=None, trouble="CrashLoopBackOff: back-off")
    hopeless = replace(view, driver_pods=(crashing,))
    assert failing_with(outcome_of(hopeless), hopeless).cause == (
        "driver-start: the driver container restarted 3 times (CrashLoopBackOff: back-off;"
        f" it {KILLED})"
    )


# Driver restarts during the validation.


def test_a_recreated_driver_pod_is_admitted_again() -> None:
    pod = driver_pod(NEW, uid="next", ready=False, started=None)
    shut_gate = Gate(admitted_pod_uid=POD, waiting_pod_uid="next")
    view = replace(validating(), driver_pods=(pod,), gate=shut_gate)
    record = record_in(outcome_of(view))
    assert (record.state, record.paused) == (S.POD_RESTART_REQUIRED, True)
    assert (record.since, record.deadline) == (NOW, NOW + 1800)
    assert record.old_pod_uid == "pod-target-old-node-1"
    after = run_step(view, step_of(outcome_of(view)))
    awake = [name for name in QUIET if name != "plugin"]
    assert slot_writes(outcome_of(after)) == dict.fromkeys(awake, Quiesce())


def test_a_driver_waiting_for_safe_load_is_released() -> None:
    for pods in ((driver_pod(NEW),), ()):
        write = node_write(outcome_of(ready(safe_load=True, driver_pods=pods)))
        assert write.applied.cleared == (SAFE_LOAD_ANNOTATION,)


def test_nothing_is_judged_during_a_bus_outage() -> None:
    wait = wait_of(outcome_of(proven(), bus_down_since=NOW - 1))
    assert (wait.code, wait.until) == (WaitCode.BUS, None)


def test_without_a_pod_the_module_load_is_validated() -> None:
    loaded = LoadedDriver(version="1", loaded_at=NOW - 40)
    record = {"operation": Operation.VALIDATE, "started": False}
    view = ready(record, driver_pods=(), loaded=loaded)
    pool_view = replace(granted(pool(), view), method=InstallMethod.PRE_INSTALLED)
    view = run_step(view, step_of(outcome_of(view, pool_view=pool_view)))
    resumed = outcome_of(at_phase(view, "validator", "plugin"), pool_view=pool_view)
    view = with_results(proof(run_step(view, step_of(resumed)), NOW), "validator")
    assert node_write(outcome_of(view, pool_view=pool_view)).applied.state == S.UPGRADE_DONE
    reloaded = replace(view, loaded=replace(loaded, loaded_at=NOW - 3))
    assert isinstance(slot_writes(outcome_of(reloaded, pool_view=pool_view))["validator"], Validate)


VALIDATES = {"operation": Operation.VALIDATE, "started": False}


def is_requested(outcome: NodeOutcome) -> bool:
    if isinstance(outcome, Wait):
        return False
    return isinstance(slot_writes(outcome).get("validator"), Validate)


def ends_lease(outcome: NodeOutcome) -> bool:
    if not isinstance(outcome, Step):
        return False
    writes = [action.applied for action in outcome.actions if isinstance(action, WriteNode)]
    return any(action.state == UpgradeState.UPGRADE_DONE for action in writes)


def test_on_a_host_nothing_is_validated_before_a_driver_is_loaded() -> None:
    view = ready({"operation": Operation.INSTALL}, driver_pods=(), loaded=None)
    pool_view = on_host(granted(pool(), view))
    assert step_of(outcome_of(view, pool_view=pool_view)).wait is not None
    requested = run_step(view, step_of(outcome_of(view, pool_view=pool_view)))
    assert wait_of(outcome_of(requested, pool_view=pool_view)).code is WaitCode.DRIVER_START


def test_a_request_of_an_earlier_boot_is_repeated() -> None:
    view = with_record(validating(VALIDATES), boot_id="boot-2", deadline_renewed=True)
    assert is_requested(outcome_of(replace(view, boot_id="boot-2")))


@pytest.mark.parametrize(
    ("deadline", "anew"), [(END, False), (END - 1, False), (None, False), (END + 1, True)]
)
def test_a_request_with_too_early_a_deadline_is_repeated(
    deadline: float | None, *, anew: bool
) -> None:
    assert is_requested(outcome_of(with_record(validating(), deadline=deadline))) is anew


def test_a_request_for_another_label_is_repeated() -> None:
    pod = driver_pod(NEW, label="another")
    view = with_record(replace(validating(), driver_pods=(pod,)), label="another")
    assert is_requested(outcome_of(replace(view, driver_label="another")))


@pytest.mark.parametrize(
    ("changes", "anew"),
    [
        ({}, False),
        ({"uid": "next"}, True),
        ({"started": NOW - HOUR + 0.9}, False),
        ({"started": NOW - HOUR + 1.0}, True),
    ],
)
def test_a_request_for_another_run_is_repeated(changes: dict[str, Any], *, anew: bool) -> None:
    assert (
        is_requested(outcome_of(replace(validating(), driver_pods=(driver_pod(NEW, **changes),))))
        is anew
    )


@pytest.mark.parametrize(("later", "counts"), [(-1, True), (0, False), (1, False)])
def test_accepted_evidence_precedes_its_idle_command(later: int, *, counts: bool) -> None:
    """The slot names the proven label in an op after the validation."""
    step = step_of(outcome_of(proven()))
    partial = run_step(proven(), replace(step, actions=step.actions[:-1]))
    slot = slot_in(partial, "validator")
    assert partial.evidence is not None
    partial = replace(partial, evidence=replace(partial.evidence, op=slot.op + later))
    assert ends_lease(outcome_of(partial)) is counts


def test_a_proof_under_a_former_label_does_not_end_the_lease() -> None:
    assert ends_lease(outcome_of(proven()))
    assert not ends_lease(outcome_of(replace(proven(), driver_label="another")))


@pytest.mark.parametrize(
    ("code", "cause"),
    [("crash", "validation: crash: signal 9"), ("", "validation: failed: signal 9")],
)
def test_a_failed_validation_reports_its_code(code: str, cause: str) -> None:
    view = with_results(validating(), "validator", outcome="failed", code=code, message="signal 9")
    assert failing_with(outcome_of(view), view).cause == cause


def test_unanswered_evidence_is_no_proof() -> None:
    view = with_beats(proof(validating(), NOW), END)
    cause = failing_with(outcome_of(view, END), view, END).cause
    assert cause.startswith("validation: ")
    assert cause.endswith("not answered")


def test_a_proof_of_something_else_is_requested_again_after_its_op() -> None:
    view = proof(validating(), NOW, kernel="5.15")
    assert not is_requested(outcome_of(view))
    assert is_requested(outcome_of(with_results(view, "validator")))


def test_the_plugin_waits_for_a_driver() -> None:
    view = ready({"operation": Operation.BRING_UP}, cordoned=False, driver_pods=())
    assert "plugin" not in slot_writes(outcome_of(at_phase(view, "validator", "plugin")))


def test_a_validation_without_a_limit_gets_the_default_deadline() -> None:
    view = ready({"deadline": None})
    slot = slot_in(run_step(view, step_of(outcome_of(view))), "validator")
    assert slot.deadline == NOW + 600


def test_a_finished_op_without_evidence_is_not_repeated() -> None:
    assert not is_requested(outcome_of(with_results(validating(), "validator")))
