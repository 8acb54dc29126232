"""Steps 5 and 6 at the edges: until when components may take, and which pod is the old one."""

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Quiesce
from libs.contracts.node import SAFE_LOAD_ANNOTATION, Operation
from libs.rollout.in_flight.start import old_driver_pod, safe_load_to_clear
from libs.rollout.views.pool import Readiness
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    command,
    component,
    done,
    driver_pod,
    granted,
    label_of,
    pool,
    with_build,
)
from tests.unit.rollout.in_flight.builders import WAITS_AT_GATE, restarting
from tests.unit.rollout.in_flight.builders import outcome_of as restarts
from tests.unit.rollout.in_flight.step_runner import (
    TOKEN,
    in_flight,
    run_step,
    with_beats,
    with_component,
    with_results,
)
from tests.unit.rollout.in_flight.test_start import (
    LIMIT,
    LOUD,
    S,
    emptied,
    outcome_of,
    quiescing,
    quiet,
)
from tests.unit.rollout.outcomes import slot_writes, step_of, wait_of

LABEL = label_of(NEW)


def test_before_the_start_only_the_slot_deadline_ends_the_wait() -> None:
    """The deadline of the state is for its pods."""
    late = in_flight(S.POD_DELETION_REQUIRED, record={"deadline": NOW + 10})
    view = run_step(late, step_of(outcome_of(late)))
    assert wait_of(outcome_of(view)).until == NOW + LIMIT


@pytest.mark.parametrize(("deadline", "until"), [(NOW + 10, NOW + 10), (None, NOW + LIMIT)])
def test_after_the_start_the_state_deadline_ends_the_wait_too(
    deadline: float | None, until: float
) -> None:
    view = restarting(WAITS_AT_GATE, record={"deadline": deadline})
    asked = component(command(Quiesce(), order=(TOKEN, 1), deadline=NOW + LIMIT))
    assert wait_of(restarts(with_component(view, "plugin", asked))).until == until


def test_a_command_of_an_earlier_lease_is_sent_again() -> None:
    before = component(command(Quiesce(), order=(TOKEN - 1, 1), deadline=NOW + LIMIT))
    view = with_results(with_component(emptied(), "plugin", before), "plugin")
    assert "plugin" in slot_writes(outcome_of(view))


def test_a_superseded_command_is_sent_again_until_the_limit() -> None:
    view = with_results(quiescing(), "plugin", "discovery", "validator")
    view = with_results(view, "telemetry", outcome="superseded")
    assert slot_writes(outcome_of(view)) == {"telemetry": Quiesce()}
    at = NOW + LIMIT
    step = step_of(outcome_of(with_beats(view, at), at))
    assert step.because.startswith("released: quiesce: telemetry could not")


def test_a_failure_without_a_message_is_quoted_with_its_outcome() -> None:
    view = with_results(quiescing(), "plugin", "discovery", "validator")
    view = with_results(view, "telemetry", outcome="failed")
    assert wait_of(outcome_of(view)).detail == "telemetry could not: failed"


def test_the_start_names_the_new_driver_label() -> None:
    assert step_of(outcome_of(quiet())).because == f"the start: its driver label becomes {LABEL}"
    removed = {"operation": Operation.REMOVE, "target": "", "label": "", "deadline": NOW + 300}
    view = in_flight(S.POD_DELETION_REQUIRED, record=removed, excluded=True)
    view = with_results(run_step(view, step_of(outcome_of(view))), *LOUD)
    assert step_of(outcome_of(view)).because == "the start: its driver label goes"


@pytest.mark.parametrize(
    ("operation", "waits", "target", "goes"),
    [
        (Operation.UPGRADE, False, OLD, True),
        (Operation.SAME_LABEL, False, NEW, True),
        (Operation.BRING_UP, False, NEW, False),
        (Operation.BRING_UP, False, OLD, True),
        (Operation.UPGRADE, True, NEW, False),
        (Operation.UPGRADE, True, OLD, True),
    ],
)
def test_which_pod_has_to_go_before_the_next_is_admitted(
    operation: Operation, target: str, *, waits: bool, goes: bool
) -> None:
    view = done(target=target, safe_load=waits)
    assert (old_driver_pod(view, LABEL, operation) is not None) is goes


def test_safe_load_is_cleared_for_the_right_driver_only() -> None:
    waiting = done(safe_load=True)
    assert safe_load_to_clear(waiting, LABEL) == (SAFE_LOAD_ANNOTATION,)
    assert safe_load_to_clear(replace(waiting, driver_pods=(driver_pod(OLD),)), LABEL) == ()
    assert safe_load_to_clear(done(), LABEL) == ()


@pytest.mark.parametrize(
    ("detail", "said"),
    [("generation 4", "generation 4"), ("", f"the driver of target {NEW} is being changed")],
)
def test_an_unsettled_target_reports_its_detail(detail: str, said: str) -> None:
    view = quiet()
    where = with_build(granted(pool(), view), readiness=Readiness.UNSETTLED, detail=detail)
    assert wait_of(outcome_of(view, where=where)).detail == said
