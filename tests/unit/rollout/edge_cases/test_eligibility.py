"""Whether a node could start, at the edges: what is broken, whose cordon it is, who is heard."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import MANAGER, NodeRecord, NodeRequest, Operation
from libs.contracts.waits import WaitCode
from libs.policy.kinds.strategy import CordonedNodes, StrategySpec
from libs.policy.wanted import InstallMethod
from libs.rollout.at_rest import step_at_rest
from libs.rollout.at_rest.eligibility import is_broken
from libs.rollout.at_rest.state_writes import owned_label
from libs.rollout.at_rest.targets import goal_of, target_of
from libs.rollout.decision import Candidate, NodeOutcome, Wait
from libs.rollout.views.machine import WorkloadPod
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView, Readiness
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    PERSON,
    done,
    evidence,
    idle_components,
    instant,
    label_of,
    node,
    on_host,
    pool,
    record,
    required,
    with_build,
    with_record,
)
from tests.unit.rollout.outcomes import candidate_of, wait_of


def outcome_of(view: NodeView, where: PoolView | None = None) -> NodeOutcome:
    return step_at_rest(view, where or pool(), instant())


def starts(view: NodeView, where: PoolView | None = None) -> Candidate:
    return candidate_of(outcome_of(view, where))


def waits(view: NodeView, where: PoolView | None = None) -> Wait:
    return wait_of(outcome_of(view, where))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"started": True}, True),
        ({"unproven": True}, True),
        ({"started": True, "evidence": evidence(passed=False)}, True),
        ({"started": True, "evidence": evidence()}, False),
    ],
)
def test_a_broken_node_was_changed_and_has_no_proof(
    changes: dict[str, Any], *, expected: bool
) -> None:
    said: dict[str, Any] = {"evidence": None, **changes}
    assert is_broken(record(**said)) is expected


def test_a_driver_label_is_kept_when_it_is_right_or_ours() -> None:
    view = with_record(required(field_managers={}), label=label_of(OLD))
    assert isinstance(view.record, NodeRecord)
    assert owned_label(view, view.record) == label_of(OLD)
    other = replace(view, driver_label="another")
    assert owned_label(other, view.record) == ""
    assert (
        owned_label(replace(other, field_managers={NodeField.DRIVER: (MANAGER,)}), view.record)
        == "another"
    )


@pytest.mark.parametrize(("passed", "outside"), [(True, False), (False, True)])
def test_a_node_with_a_proof_is_inside_the_counts_again(*, passed: bool, outside: bool) -> None:
    view = with_record(required(), evidence=evidence(OLD, passed=passed), outside=True)
    view = replace(view, components=idle_components(proven=label_of(OLD) if passed else ""))
    assert starts(view).outside is outside


def test_a_node_that_is_not_ready_is_not_validated() -> None:
    view = done(boot_id="boot-2")
    assert starts(view).operation is Operation.VALIDATE
    assert waits(replace(view, ready=False)).code is WaitCode.NOT_READY


def test_a_removal_needs_the_driver_agent_but_no_validator() -> None:
    view = done(excluded=True)
    assert starts(view).operation is Operation.REMOVE
    parts = {name: part for name, part in view.components.items() if name != "driver"}
    assert waits(replace(view, components=parts)).code is WaitCode.AGENT_SILENT
    parts = {name: part for name, part in view.components.items() if name != "validator"}
    assert starts(replace(view, components=parts)).operation is Operation.REMOVE


def test_a_removal_waits_for_pods_unless_preflight_is_waived() -> None:
    pod = WorkloadPod(namespace="ml", name="w", uid="uid-w", gpu=True, bare=True)
    view = done(excluded=True, pods=(pod,))
    assert waits(view).code is WaitCode.PREFLIGHT
    assert starts(replace(view, request=NodeRequest.WITHOUT_PREFLIGHT)).check is None


SKIPS = replace(pool(), strategy=StrategySpec(cordoned_nodes=CordonedNodes.SKIP))


@pytest.mark.parametrize(
    ("cordoned", "owners", "adopted", "skipped"),
    [
        (False, (), False, False),
        (True, (PERSON,), False, True),
        (True, (), False, True),
        (True, (MANAGER,), False, False),
        (True, (MANAGER, PERSON), False, True),
        (True, (MANAGER, PERSON), True, False),
        (True, (PERSON,), True, True),
    ],
)
def test_which_cordon_makes_a_node_skipped(
    owners: tuple[str, ...], *, cordoned: bool, adopted: bool, skipped: bool
) -> None:
    view = with_record(required(cordoned=cordoned), cordon_adopted=adopted)
    view = replace(view, field_managers={**view.field_managers, NodeField.CORDON: owners})
    outcome = outcome_of(view, SKIPS)
    assert (isinstance(outcome, Wait) and outcome.code is WaitCode.SKIPPED) is skipped


@pytest.mark.parametrize(
    ("cause", "said"), [("jobs: late", "jobs: late"), ("", "it could not be finished in time")]
)
def test_a_node_in_back_off_reports_its_cause(cause: str, said: str) -> None:
    view = with_record(required(), target=NEW, back_off_until=NOW + 9, cause=cause)
    assert waits(view).detail == f"it was given back: {said}"


@pytest.mark.parametrize(
    ("where", "lacks", "code"),
    [
        (pool(), "swap", True),
        (pool(), "install", False),
        (on_host(pool()), "install", True),
        (on_host(pool()), "swap", False),
        (pool(), "preflight", True),
    ],
)
def test_a_start_needs_the_capabilities_of_its_method(
    where: PoolView, lacks: str, *, code: bool
) -> None:
    view = required()
    driver = view.components["driver"]
    driver = replace(driver, capabilities=driver.capabilities - {lacks})
    outcome = outcome_of(replace(view, components={**view.components, "driver": driver}), where)
    assert (isinstance(outcome, Wait) and outcome.code is WaitCode.AGENT_SILENT) is code


def test_a_validation_needs_only_the_validator() -> None:
    view = done(boot_id="boot-2")
    parts = {name: part for name, part in view.components.items() if name != "driver"}
    assert starts(replace(view, components=parts)).operation is Operation.VALIDATE


# Targets.


@pytest.mark.parametrize(
    ("readiness", "expected"), [(Readiness.UNSETTLED, OLD), (Readiness.MISSING, NEW)]
)
def test_a_joining_node_waits_for_an_unsettled_last_good_target(
    readiness: Readiness, expected: str
) -> None:
    where = with_build(pool(standing={"last_good": OLD}), OLD, readiness=readiness)
    assert target_of(node(), None, where) == expected


def test_a_joining_node_keeps_a_pre_installed_driver() -> None:
    where = replace(pool(standing={"last_good": OLD}), method=InstallMethod.PRE_INSTALLED)
    assert target_of(node(), None, where) == NEW


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (("no such image",), "no such image"),
        ((), "its policy asks for no driver that could be rendered"),
    ],
)
def test_a_missing_target_reports_why_nothing_is_wanted(held: tuple[str, ...], said: str) -> None:
    goal = wait_of(goal_of(node(), replace(pool(), held=held), "", instant()))
    assert (goal.code, goal.detail) == (WaitCode.TARGET_MISSING, said)


@pytest.mark.parametrize(
    ("detail", "said"),
    [("no artefact", "no artefact"), ("", f"there is no driver of target {NEW} for ubuntu24.04")],
)
def test_a_missing_build_reports_its_detail(detail: str, said: str) -> None:
    where = with_build(pool(), readiness=Readiness.MISSING, detail=detail)
    assert wait_of(goal_of(node(), where, NEW, instant())).detail == said
