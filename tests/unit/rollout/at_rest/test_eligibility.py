"""What keeps a node at rest from starting (docs/states.md#waits)."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import PreflightCheck
from libs.contracts.node import MANAGER, LeaseOwner, NodeRecord, NodeRequest, Operation
from libs.contracts.waits import WaitCode
from libs.policy.kinds.strategy import CordonedNodes, StrategySpec
from libs.policy.kinds.upgrade_policy import Drain, PodDeletion
from libs.rollout.decision import Candidate, NodeOutcome, Wait
from libs.rollout.eligibility import is_broken
from libs.rollout.preflight_check import build_check, needs_preflight
from libs.rollout.views.machine import EvictionExemption, WorkloadPod
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from libs.rollout.views.pool import PoolView, Readiness
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    PERSON,
    build,
    component,
    done,
    evidence,
    idle_components,
    install_of,
    instant,
    label_of,
    lease,
    node,
    node_case,
    on_host,
    pool,
    record,
    required,
    step_at_rest,
    with_build,
    with_record,
    without_component,
)
from tests.unit.rollout.outcomes import candidate_of, wait_of

SKIPS = replace(pool(), strategy=StrategySpec(cordoned_nodes=CordonedNodes.SKIP))
WORK = WorkloadPod(namespace="ml", name="train-0", uid="pod-train", gpu=True)


def backed_off(until: float, target: str = NEW) -> NodeView:
    view = required()
    assert isinstance(view.record, NodeRecord)
    cause = "jobs: still running"
    stored = replace(view.record, back_off_until=until, target=target, cause=cause)
    return replace(view, record=stored)


def with_component(name: str, **changes: object) -> NodeView:
    view = required()
    part = replace(view.components[name], **changes)
    return replace(view, components={**view.components, name: part})


ROWS: dict[str, tuple[NodeView, PoolView, str, float | None]] = {
    "the skip label": (required(skip=True), pool(), "skipped", None),
    "a lease of a person": (required(lease=lease(owner=LeaseOwner.HUMAN)), pool(), "skipped", None),
    "a lease of repair": (required(lease=lease(owner=LeaseOwner.REPAIR)), pool(), "skipped", None),
    "a lease for MIG": (required(lease=lease(owner=LeaseOwner.MIG)), pool(), "skipped", None),
    "an unreadable lease": (required(lease=MalformedAnnotation("{")), pool(), "skipped", None),
    "it was given back": (backed_off(NOW + 60), pool(), "back-off", NOW + 60),
    "it is not ready": (required(ready=False), pool(), "not-ready", None),
    "its driver agent is not heard yet": (
        with_component("driver", last_beat=None),
        pool(),
        "stale",
        None,
    ),
    "its driver agent never reported": (
        with_component("driver", last_beat=None, silent_at=NOW),
        pool(),
        "agent-silent",
        None,
    ),
    "its driver agent is silent": (
        with_component("driver", silent_at=NOW),
        pool(),
        "agent-silent",
        None,
    ),
    "its validator is silent": (
        with_component("validator", silent_at=NOW - 1),
        pool(),
        "agent-silent",
        None,
    ),
    "a bare pod": (required(pods=(replace(WORK, bare=True),)), pool(), "preflight", None),
    "a pod that would lose its emptyDir": (
        required(pods=(replace(WORK, empty_dir=True),)),
        pool(),
        "preflight",
        None,
    ),
    "target: not settled": (
        required(),
        with_build(pool(), readiness=Readiness.UNSETTLED),
        "target-unsettled",
        None,
    ),
    "there is no driver for its variant": (
        required(variant="rhel9"),
        pool(),
        "target-missing",
        None,
    ),
    "its variant is not known": (required(variant=""), pool(), "target-unsettled", None),
    "its policy wants nothing": (required(), pool(""), "target-missing", None),
    "its policy was deleted": (required(), replace(pool(), gone=True), "policy-gone", None),
}


@pytest.mark.parametrize("row", ROWS)
def test_each_obstacle_has_its_wait_code(row: str) -> None:
    node, pool, code, until = ROWS[row]
    outcome = wait_of(step_at_rest(node, pool))
    assert (outcome.code, outcome.until, outcome.since) == (code, until, NOW)
    assert outcome.detail
    assert outcome.who


def test_a_foreign_operator_blocks_all_but_nodes_in_place() -> None:
    foreign_instant = instant(foreign_operator="gpu-operator renewed its Lease 3 s ago")
    for lagging in (node(), required(), done(target=OLD), done(driver_pods=())):
        outcome = wait_of(step_at_rest(lagging, pool(), foreign_instant))
        assert outcome.code == "foreign-operator"
        assert "renewed" in outcome.detail
    assert step_at_rest(done(), pool(), foreign_instant) is None


STARTS: dict[str, tuple[NodeView, PoolView]] = {
    "a cordon of a person": (required(cordoned=True), pool()),
    "the back-off is over": (backed_off(NOW), pool()),
    "a back-off of another target": (backed_off(NOW + 60, "target-other"), pool()),
    "telemetry is silent": (with_component("telemetry", last_beat=None, silent_at=0.0), pool()),
    "a pod that may be forced": (
        required(pods=(replace(WORK, bare=True),)),
        pool(upgrade={"pod_deletion": PodDeletion(force=True)}),
    ),
    "a pod that may lose its emptyDir": (
        required(pods=(replace(WORK, empty_dir=True),)),
        pool(upgrade={"gpu_pod_deletion": PodDeletion(delete_empty_dir=True)}),
    ),
    "a pod that only the drain may force": (
        required(pods=(replace(WORK, bare=True, drained=True),)),
        pool(upgrade={"drain": Drain(enable=True, force=True)}),
    ),
    "a job without owner, which will end": (
        required(pods=(replace(WORK, bare=True, job=True),)),
        pool(),
    ),
    "a pod that a person keeps from evictions": (
        required(pods=(replace(WORK, bare=True, exemption=EvictionExemption.DRAIN_SKIP),)),
        pool(),
    ),
    "a lease of an earlier node": (required(lease=lease(node_uid="uid-of-earlier")), pool()),
}


@pytest.mark.parametrize("case", STARTS)
def test_conditions_that_prevent_no_start(case: str) -> None:
    node, pool = STARTS[case]
    assert isinstance(step_at_rest(node, pool), Candidate)


def test_a_bus_outage_is_reported_before_silent_agents() -> None:
    silent = with_component("driver", silent_at=NOW - 1)
    assert wait_of(step_at_rest(silent, pool(), instant(bus_down_since=NOW - 100))).code == "bus"


def test_a_preflight_names_the_driver_and_the_pods_to_be_removed() -> None:
    pods = (
        WORK,
        replace(WORK, uid="pod-bare-job", bare=True, job=True),
        WorkloadPod(
            namespace="gpu", name="dcgm", uid="pod-dcgm", exemption=EvictionExemption.OPERAND
        ),
        WorkloadPod(
            namespace="sluice", name="plugin", uid="pod-plugin", exemption=EvictionExemption.SLUICE
        ),
        WorkloadPod(
            namespace="x",
            name="watcher",
            uid="pod-ds",
            gpu=True,
            exemption=EvictionExemption.DAEMON_SET,
        ),
        WorkloadPod(namespace="x", name="web", uid="pod-web", drained=True),
    )
    outcome = candidate_of(step_at_rest(required(pods=pods)))
    removed = ("pod-bare-job", "pod-dcgm", "pod-plugin", f"pod-{OLD}-node-1", "pod-train")
    assert outcome.check == PreflightCheck(
        label=label_of(NEW), install_digest=install_of(NEW), removes_pods=tuple(sorted(removed))
    )
    drain_pool = pool(upgrade={"drain": Drain(enable=True)})
    drained = candidate_of(step_at_rest(required(pods=pods), drain_pool))
    assert drained.check is not None
    assert drained.check.removes_pods == tuple(sorted((*removed, "pod-web")))


WAIVED = NodeRequest.WITHOUT_PREFLIGHT


@pytest.mark.parametrize(
    "waiting",
    [
        required(request=WAIVED, pods=(replace(WORK, bare=True),)),
        with_component("driver", capabilities=frozenset({"idle", "swap"})),
    ],
    ids=["a bare pod", "an agent without preflight"],
)
def test_a_request_waives_the_preflight(waiting: NodeView) -> None:
    outcome = candidate_of(step_at_rest(replace(waiting, request=WAIVED)))
    assert outcome.check is None


def test_a_restart_needs_no_preflight() -> None:
    restart = with_build(pool(), install_digest=install_of(OLD))
    outcome = candidate_of(step_at_rest(required(pods=(replace(WORK, bare=True),)), restart))
    assert (outcome.operation, outcome.check) == (Operation.RESTART, None)


def test_the_preflight_of_a_removal_has_no_label() -> None:
    outcome = candidate_of(step_at_rest(done(excluded=True)))
    assert outcome.check == PreflightCheck(label="", removes_pods=(f"pod-{NEW}-node-1",))


def test_skip_and_back_off_do_not_hold_up_a_validation() -> None:
    restarted = done(driver_pods=(replace(done().driver_pods[0], started=NOW - 7200),), skip=True)
    assert candidate_of(step_at_rest(restarted)).operation is Operation.VALIDATE
    validator_only = {"validator": component()}
    waits = wait_of(
        step_at_rest(node(components={**node().components, **validator_only}, ready=False))
    )
    assert waits.code == "not-ready"


def test_which_operations_need_a_preflight() -> None:
    asked = {operation for operation in Operation if needs_preflight(required(), operation)}
    assert asked == set(Operation) - {Operation.VALIDATE, Operation.RESTART}
    waived = required(request=NodeRequest.WITHOUT_PREFLIGHT)
    assert not any(needs_preflight(waived, operation) for operation in Operation)


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
    workload = replace(WorkloadPod(namespace="ml", name="w", uid="uid-w"), **pod)
    view = required(pods=(workload,), driver_pods=())
    asked = build_check(node_case(view, pool(upgrade=upgrade)), build())
    assert asked.removes_pods == (("uid-w",) if goes else ())


def outcome_of(view: NodeView, pool_view: PoolView | None = None) -> NodeOutcome:
    return step_at_rest(view, pool_view or pool())


def starts(view: NodeView, pool_view: PoolView | None = None) -> Candidate:
    return candidate_of(outcome_of(view, pool_view))


def waits(view: NodeView, pool_view: PoolView | None = None) -> Wait:
    return wait_of(outcome_of(view, pool_view))


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
    text: dict[str, Any] = {"evidence": None, **changes}
    assert is_broken(record(**text)) is expected


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
    assert waits(without_component(view, "driver")).code is WaitCode.AGENT_SILENT
    assert starts(without_component(view, "validator")).operation is Operation.REMOVE


def test_a_removal_waits_for_pods_unless_preflight_is_waived() -> None:
    pod = WorkloadPod(namespace="ml", name="w", uid="uid-w", gpu=True, bare=True)
    view = done(excluded=True, pods=(pod,))
    assert waits(view).code is WaitCode.PREFLIGHT
    assert starts(replace(view, request=NodeRequest.WITHOUT_PREFLIGHT)).check is None


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


@pytest.mark.parametrize("cause", ["jobs: late", ""])
def test_a_node_in_back_off_reports_its_cause(cause: str) -> None:
    view = with_record(required(), target=NEW, back_off_until=NOW + 9, cause=cause)
    detail = waits(view).detail
    assert cause in detail
    assert detail == detail.strip()


@pytest.mark.parametrize(
    ("pool_view", "lacks", "code"),
    [
        (pool(), "swap", True),
        (pool(), "install", False),
        (on_host(pool()), "install", True),
        (on_host(pool()), "swap", False),
        (pool(), "preflight", True),
    ],
)
def test_a_start_needs_the_capabilities_of_its_method(
    pool_view: PoolView, lacks: str, *, code: bool
) -> None:
    view = required()
    driver = view.components["driver"]
    driver = replace(driver, capabilities=driver.capabilities - {lacks})
    outcome = outcome_of(replace(view, components={**view.components, "driver": driver}), pool_view)
    assert (isinstance(outcome, Wait) and outcome.code is WaitCode.AGENT_SILENT) is code


def test_a_validation_needs_only_the_validator() -> None:
    view = done(boot_id="boot-2")
    assert starts(without_component(view, "driver")).operation is Operation.VALIDATE


def test_who_ends_a_skip_is_told_with_the_command_for_what_is_there() -> None:
    skipped, cordoned = required(skip=True), required(cordoned=True)
    label = wait_of(outcome_of(skipped, SKIPS)).who
    assert label == f"an administrator, by `sluice upgrade unskip {skipped.name}`"
    cordon = wait_of(outcome_of(cordoned, SKIPS)).who
    assert cordon == f"an administrator, by `kubectl uncordon {cordoned.name}`"
