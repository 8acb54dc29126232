"""What keeps a node at rest from starting (docs/states.md#waits)."""

import pytest
from msgspec.structs import replace

from libs.contracts.commands import PreflightCheck
from libs.contracts.node import LeaseOwner, NodeRecord, NodeRequest, Operation
from libs.contracts.reports import PodUse, Usage
from libs.policy.kinds.strategy import CordonedNodes, StrategySpec
from libs.policy.kinds.upgrade_policy import Drain, PodDeletion
from libs.rollout.at_rest import step_at_rest
from libs.rollout.decision import Candidate
from libs.rollout.views.machine import EvictionExemption, WorkloadPod
from libs.rollout.views.node import MalformedAnnotation, NodeView
from libs.rollout.views.pool import PoolView, Readiness
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    component,
    done,
    install_of,
    instant,
    label_of,
    lease,
    node,
    pool,
    required,
    with_build,
)
from tests.unit.rollout.outcomes import candidate_of, wait_of

SKIPS = replace(pool(), strategy=StrategySpec(cordoned_nodes=CordonedNodes.SKIP))
WORK = WorkloadPod(namespace="ml", name="train-0", uid="pod-train", gpu=True)


def backed_off(until: float, target: str = NEW) -> NodeView:
    made = required()
    assert isinstance(made.record, NodeRecord)
    cause = "jobs: still running"
    said = replace(made.record, back_off_until=until, target=target, cause=cause)
    return replace(made, record=said)


def with_component(name: str, **changes: object) -> NodeView:
    made = required()
    held = replace(made.components[name], **changes)
    return replace(made, components={**made.components, name: held})


ROWS: dict[str, tuple[NodeView, PoolView, str, float | None]] = {
    "the skip label": (required(skip=True), pool(), "skipped", None),
    "a lease of a person": (required(lease=lease(owner=LeaseOwner.HUMAN)), pool(), "skipped", None),
    "a lease of repair": (required(lease=lease(owner=LeaseOwner.REPAIR)), pool(), "skipped", None),
    "a lease for MIG": (required(lease=lease(owner=LeaseOwner.MIG)), pool(), "skipped", None),
    "a lease that nobody can read": (
        required(lease=MalformedAnnotation("{")),
        pool(),
        "skipped",
        None,
    ),
    "it was given back": (backed_off(NOW + 60), pool(), "back-off", NOW + 60),
    "it is not ready": (required(ready=False), pool(), "not-ready", None),
    "nobody has heard its driver agent": (
        with_component("driver", last_beat=None),
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
    "a pod that nobody would make anew": (
        required(pods=(replace(WORK, bare=True),)),
        pool(),
        "preflight",
        None,
    ),
    "a pod that would lose its emptyDir": (
        required(pods=(replace(WORK, empty_dir=True),)),
        pool(),
        "preflight",
        None,
    ),
    "the target is not settled": (
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
    outcome = wait_of(step_at_rest(node, pool, instant()))
    assert (outcome.code, outcome.until, outcome.since) == (code, until, NOW)
    assert outcome.detail
    assert outcome.who


def test_a_foreign_operator_blocks_all_but_nodes_in_place() -> None:
    theirs = instant(foreign_operator="gpu-operator renewed its Lease 3 s ago")
    for lagging in (node(), required(), done(target=OLD), done(driver_pods=())):
        outcome = wait_of(step_at_rest(lagging, pool(), theirs))
        assert outcome.code == "foreign-operator"
        assert "renewed" in outcome.detail
    assert step_at_rest(done(), pool(), theirs) is None


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
def test_what_is_no_obstacle(case: str) -> None:
    node, pool = STARTS[case]
    assert isinstance(step_at_rest(node, pool, instant()), Candidate)


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
            namespace="sluice", name="plugin", uid="pod-plugin", exemption=EvictionExemption.OURS
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
    outcome = candidate_of(step_at_rest(required(pods=pods), pool(), instant()))
    gone = ("pod-bare-job", "pod-dcgm", "pod-plugin", f"pod-{OLD}-node-1", "pod-train")
    assert outcome.check == PreflightCheck(
        label=label_of(NEW), install_digest=install_of(NEW), removes_pods=tuple(sorted(gone))
    )
    drains = pool(upgrade={"drain": Drain(enable=True)})
    drained = candidate_of(step_at_rest(required(pods=pods), drains, instant()))
    assert drained.check is not None
    assert drained.check.removes_pods == tuple(sorted((*gone, "pod-web")))


def test_unknown_pods_are_taken_from_the_agent_report() -> None:
    use = Usage(pods=(PodUse(pod_uid="pod-a", gpus=2), PodUse(pod_uid="pod-b", processes=1)))
    outcome = candidate_of(step_at_rest(required(usage=use), pool(), instant()))
    assert outcome.check is not None
    assert outcome.check.removes_pods == ("pod-a", f"pod-{OLD}-node-1")


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
    outcome = candidate_of(step_at_rest(replace(waiting, request=WAIVED), pool(), instant()))
    assert outcome.check is None


def test_a_restart_needs_no_preflight() -> None:
    restart = with_build(pool(), install_digest=install_of(OLD))
    outcome = candidate_of(
        step_at_rest(required(pods=(replace(WORK, bare=True),)), restart, instant())
    )
    assert (outcome.operation, outcome.check) == (Operation.RESTART, None)


def test_the_preflight_of_a_removal_has_no_label() -> None:
    outcome = candidate_of(step_at_rest(done(excluded=True), pool(), instant()))
    assert outcome.check == PreflightCheck(label="", removes_pods=(f"pod-{NEW}-node-1",))


def test_skip_and_back_off_do_not_hold_up_a_validation() -> None:
    restarted = done(driver_pods=(replace(done().driver_pods[0], started=NOW - 7200),), skip=True)
    assert candidate_of(step_at_rest(restarted, pool(), instant())).operation is Operation.VALIDATE
    alone = {"validator": component()}
    waits = wait_of(
        step_at_rest(
            node(components={**node().components, **alone}, ready=False), pool(), instant()
        )
    )
    assert waits.code == "not-ready"
