"""What confirms a passed validation: a pod where the policy asks for it; the runtime's digest."""

from typing import Any

from msgspec.structs import replace

from libs.contracts.commands import Validate
from libs.contracts.node import NodeRecord, UpgradeState, ValidationPod
from libs.contracts.reports import Resource
from libs.contracts.waits import WaitCode
from libs.rollout.decision import NodeOutcome, Step
from libs.rollout.limits import RUNTIME_REPORT
from libs.rollout.views.machine import EvictionExemption, WorkloadPod
from libs.rollout.views.node import NodeView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    done,
    granted,
    pool,
    step_at_rest,
    with_record,
)
from tests.unit.rollout.in_flight.builders import outcome_of
from tests.unit.rollout.in_flight.step_runner import TOKEN, run_step, with_beats
from tests.unit.rollout.in_flight.test_validation import END, failing_with, proven
from tests.unit.rollout.outcomes import (
    candidate_of,
    node_write,
    record_in,
    slot_writes,
    step_of,
    wait_of,
)

GPU = Resource(name="nvidia.com/gpu", count=2)
ASKING = pool(validation_pod=True)
USER = WorkloadPod(namespace="ml", name="train", uid="u", gpu=True)


def outcome(view: NodeView, at: float = NOW, **changes: Any) -> NodeOutcome:
    return outcome_of(view, at, granted(replace(ASKING, **changes), view))


def passed(**changes: object) -> NodeView:
    """Return a node whose validation has passed, with GPUs that pods can have."""
    view = proven(allocatable=(GPU,), shown={GPU.name: GPU.count})
    return replace(view, **{"pods": (), **changes})


def asking(**changes: object) -> NodeView:
    """Return a node whose record asks for the pod."""
    view = passed(**changes)
    return run_step(view, step_of(outcome(view)))


def order_of(view: NodeView) -> str:
    assert view.evidence is not None
    return str(view.evidence.order)


def with_pod(view: NodeView, *, order: str = "", uid: str = "", **changes: object) -> NodeView:
    pod = ValidationPod(node_uid=uid or view.uid, order=order or order_of(view))
    return replace(view, validation_pod=replace(pod, **changes))


def done_record(view: NodeView, **changes: Any) -> NodeRecord:
    applied = node_write(outcome(view, **changes)).applied
    assert applied.state == UpgradeState.UPGRADE_DONE
    assert applied.record is not None
    return applied.record


def steps_of(record: NodeRecord) -> list[tuple[str, bool, str]]:
    assert record.evidence is not None
    return [(step.name, step.passed, step.message) for step in record.evidence.steps[-1:]]


def test_the_record_asks_for_a_pod_by_the_order_of_the_validation() -> None:
    view = passed()
    assert record_in(outcome(view)).validation_pod == order_of(view)
    assert order_of(view).startswith(f"{TOKEN}.")
    wait = wait_of(outcome(asking()))
    assert (wait.code, wait.detail) == (
        WaitCode.VALIDATION,
        "waiting for the pod that asks for a GPU",
    )


def test_a_pod_that_passed_is_the_last_step_of_the_evidence() -> None:
    record = done_record(with_pod(asking(), passed=True, message="it computed"))
    assert steps_of(record) == [("workload", True, "it computed")]
    assert record.validation_pod == ""


def test_a_pod_of_another_validation_confirms_nothing() -> None:
    view = asking()
    for stale in (
        with_pod(view, order=f"{TOKEN}.1", passed=True),
        with_pod(view, order=f"{TOKEN - 1}.9", passed=True),
        with_pod(view, uid="uid-before", passed=True),
    ):
        assert wait_of(outcome(stale)).detail == "waiting for the pod that asks for a GPU"


def test_what_it_waits_for_is_said_and_is_the_cause_at_the_deadline() -> None:
    view = with_pod(asking(), message="the API server refused the pod: exceeded quota")
    detail = "the API server refused the pod: exceeded quota"
    assert wait_of(outcome(view)).detail == f"waiting for the pod that asks for a GPU: {detail}"
    assert failing_cause(view, END) == f"validation: workload: {detail}"
    assert failing_cause(asking(), END) == "validation: workload: no pod computed in time"


def failing_cause(view: NodeView, at: float = NOW) -> str:
    overdue = with_beats(view, at)
    return failing_with(outcome(overdue, at), overdue, at).cause


def test_a_pod_that_failed_fails_the_node_at_once() -> None:
    view = with_pod(asking(), passed=False, message="the pod has no GPU that it can use")
    assert failing_cause(view) == "validation: workload: the pod has no GPU that it can use"


def test_no_pod_is_asked_for_where_pods_have_gpus_or_none_can_have_one() -> None:
    assert done_record(passed(pods=(USER,))).validation_pod == ""
    assert done_record(proven()).validation_pod == ""
    assert done_record(passed(), validation_pod=False).validation_pod == ""
    own = replace(USER, exemption=EvictionExemption.SLUICE)
    for pods in ((own,), (replace(USER, deleting=True),), (replace(USER, gpu=False),)):
        assert record_in(outcome(passed(pods=pods))).validation_pod


# The runtime's configuration.


def of_runtime(proven_digest: str, found: str) -> NodeView:
    return replace(proven(runtime_digest=proven_digest), runtime_digest=found)


def test_evidence_of_this_configuration_or_of_none_counts() -> None:
    for digests in (("one", "one"), ("one", ""), ("none", "one"), ("", "one")):
        assert node_write(outcome_of(of_runtime(*digests))).applied.state == "upgrade-done"


def test_evidence_of_another_configuration_waits_for_the_report_and_is_then_void() -> None:
    view = of_runtime("one", "another")
    step = outcome_of(view)
    assert isinstance(step, Step)
    assert step.actions == ()
    assert step.wake_at == NOW + RUNTIME_REPORT
    assert wait_of(step).code is WaitCode.VALIDATION
    again = slot_writes(outcome_of(with_beats(view, NOW + RUNTIME_REPORT), NOW + RUNTIME_REPORT))
    assert isinstance(again["validator"], Validate)
    cause = failing_with(outcome_of(with_beats(view, END), END), with_beats(view, END), END).cause
    assert cause == (
        "validation: the evidence is for another configuration of the container runtime"
    )


def test_a_node_at_rest_is_validated_again_when_its_configuration_changed() -> None:
    at_rest = done()
    assert isinstance(at_rest.record, NodeRecord)
    assert at_rest.record.evidence is not None
    proof = replace(at_rest.record.evidence, runtime_digest="one")
    at_rest = with_record(at_rest, evidence=proof)
    for found in ("", "one"):
        same = replace(at_rest, runtime_digest=found)
        assert step_at_rest(same) == step_at_rest(at_rest)
    other = replace(at_rest, runtime_digest="another")
    candidate = candidate_of(step_at_rest(other))
    assert (candidate.operation, candidate.target) == ("validate", NEW)
