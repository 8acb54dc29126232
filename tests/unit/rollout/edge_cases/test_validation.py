"""Step 8 at the edges: for which run, boot and limit the validator was asked, and what counts."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Validate
from libs.contracts.node import Operation, UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout.decision import NodeOutcome, Step, Wait, WriteNode
from tests.unit.rollout.builders import (
    HOUR,
    NEW,
    NOW,
    driver_pod,
    granted,
    on_host,
    pool,
    with_record,
)
from tests.unit.rollout.in_flight.step_runner import (
    at_phase,
    proof,
    run_step,
    with_beats,
    with_results,
)
from tests.unit.rollout.in_flight.test_validation import (
    END,
    failing_with,
    outcome_of,
    proven,
    ready,
    validating,
)
from tests.unit.rollout.outcomes import slot_writes, step_of, wait_of

VALIDATES = {"operation": Operation.VALIDATE, "started": False}


def is_requested(outcome: NodeOutcome) -> bool:
    if isinstance(outcome, Wait):
        return False
    return isinstance(slot_writes(outcome).get("validator"), Validate)


def ends_lease(outcome: NodeOutcome) -> bool:
    if not isinstance(outcome, Step):
        return False
    writes = [one.applied for one in outcome.actions if isinstance(one, WriteNode)]
    return any(one.state == UpgradeState.UPGRADE_DONE for one in writes)


def test_on_a_host_nothing_is_validated_before_a_driver_is_loaded() -> None:
    view = ready({"operation": Operation.INSTALL}, driver_pods=(), loaded=None)
    where = on_host(granted(pool(), view))
    assert step_of(outcome_of(view, where=where)).wait is not None
    told = run_step(view, step_of(outcome_of(view, where=where)))
    assert wait_of(outcome_of(told, where=where)).code is WaitCode.DRIVER_START


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
    half = run_step(proven(), replace(step, actions=step.actions[:-1]))
    slot = half.components["validator"].slot
    assert slot is not None
    assert half.evidence is not None
    half = replace(half, evidence=replace(half.evidence, op=slot.op + later))
    assert ends_lease(outcome_of(half)) is counts


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
    assert cause == "validation: it was not answered"


def test_a_proof_of_something_else_is_requested_again_after_its_op() -> None:
    view = proof(validating(), NOW, kernel="5.15")
    assert not is_requested(outcome_of(view))
    assert is_requested(outcome_of(with_results(view, "validator")))


def test_the_plugin_of_a_bring_up_waits_for_the_cuda_phase() -> None:
    view = ready({"operation": Operation.BRING_UP}, cordoned=False, driver_pods=())
    assert "plugin" not in slot_writes(outcome_of(at_phase(view, "validator", "cuda")))


def test_a_validation_without_a_limit_gets_the_default_deadline() -> None:
    view = ready({"deadline": None})
    slot = run_step(view, step_of(outcome_of(view))).components["validator"].slot
    assert slot is not None
    assert slot.deadline == NOW + 600


def test_a_finished_op_without_evidence_is_not_repeated() -> None:
    assert not is_requested(outcome_of(with_results(validating(), "validator")))
