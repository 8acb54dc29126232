"""Status and conditions of policies."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.policy.digest import target_digest
from libs.policy.kinds import KINDS
from libs.policy.kinds.common import Condition
from libs.policy.manifests import parse_manifest
from libs.policy.owners import NodeLabels
from libs.policy.pool import Pool
from libs.policy.pools import assemble_pools
from libs.policy.progress import ObservedRollout
from libs.policy.readiness import Observation, ObservedDaemonSet, ObservedNode, PodProblem
from libs.policy.status import PolicyStatus, StatusCondition, policy_statuses, updated_conditions
from tests.unit.policy import situations
from tests.unit.policy.fields import put
from tests.unit.policy.situations import (
    UBUNTU,
    Object,
    Situation,
    from_corpus,
    node,
    nvidia_driver,
)

OFF: Object = {"enabled": False}
UNBUILT = {"toolkit": OFF, "devicePlugin": OFF}
"""Operands that this version does not have: a policy that asks for one is not ready."""


def cluster_policy(**spec: Any) -> Object:
    return situations.cluster_policy(**UNBUILT, **spec)


UPGRADED = {**situations.DRIVER, "upgradePolicy": {"autoUpgrade": True}}


def crd_mode_policy() -> Object:
    return situations.crd_mode_policy(**UNBUILT)


ONE_DRIVER = Situation([cluster_policy(driver=UPGRADED)], [UBUNTU, node("c")])
NOT_READY = "ClusterPolicy is not ready; states not ready: [state-driver]; "


def healthy_observation(situation: Situation) -> dict[str, Any]:
    """Return an observation in which everything is ready."""
    rendering, owners = situation.rendering(), situation.pools().owners
    labels = {
        (rendered.pool, rendered.driver.variant): rendered.driver.label
        for rendered in rendering.objects
        if rendered.driver
    }
    return {
        "daemon_sets": {
            rendered.name: ObservedDaemonSet(desired=2, updated=2, available=2)
            for rendered in rendering.objects
            if rendered.kind == "DaemonSet"
        },
        "nodes": {
            name: ObservedNode(state="upgrade-done", label=labels.get((owners[name], variant), ""))
            for name, variant in situation.placement().nodes.items()
        },
        "rollouts": {pool.key: complete(pool) for pool in situation.pools().pools},
    }


def complete(pool: Pool, **changes: Any) -> ObservedRollout:
    found = ObservedRollout(target=target_digest(pool.driver), is_complete=True)
    return replace(found, **changes)


HEALTHY = healthy_observation(ONE_DRIVER)
(DRIVER_NAME,) = [rendered.name for rendered in ONE_DRIVER.rendering().objects if rendered.driver]


def statuses(situation: Situation, **observed: Any) -> dict[str, PolicyStatus]:
    found = policy_statuses(
        situation.pools(),
        situation.placement(),
        situation.rendering(),
        Observation(**{**healthy_observation(situation), **observed}),
    )
    return {status.name: status for status in found}


def only_status(situation: Situation, **observed: Any) -> PolicyStatus:
    (status,) = statuses(situation, **observed).values()
    return status


def status_with(
    node_c: ObservedNode | None = None, daemon_sets: dict[str, Any] | None = None, **observed: Any
) -> PolicyStatus:
    """Return the status of a healthy cluster except for this node and these DaemonSets."""
    nodes = {**HEALTHY["nodes"], **({"c": node_c} if node_c else {})}
    sets = {**HEALTHY["daemon_sets"], **(daemon_sets or {})}
    existing = {name: found for name, found in sets.items() if found}
    return only_status(ONE_DRIVER, nodes=nodes, daemon_sets=existing, **observed)


def condition_of(status: PolicyStatus, kind: str) -> StatusCondition:
    (found,) = [condition for condition in status.conditions if condition.type == kind]
    return found


def message_of(status: PolicyStatus, kind: str = "Error") -> str:
    return condition_of(status, kind).message


def true_conditions(status: PolicyStatus) -> list[str]:
    return [condition.type for condition in status.conditions if condition.status]


def test_a_policy_whose_nodes_are_done_is_ready_and_has_every_condition() -> None:
    status = only_status(ONE_DRIVER)
    assert status.state == "ready"
    assert true_conditions(status) == ["Ready", "Accepted"]
    ready, error = condition_of(status, "Ready"), condition_of(status, "Error")
    message = "ClusterPolicy is ready as all resources have been successfully reconciled"
    assert (ready.reason, ready.message) == ("Reconciled", message)
    assert (error.reason, error.message) == ("Ready", "")
    types = [
        *("Ready", "Error", "NotReady", "Upgrading", "Degraded", "Disabled"),
        *("Reconciling", "Stalled", "Accepted"),
    ]
    assert status.is_observed
    assert [condition.type for condition in status.conditions] == types
    assert all(condition.reason for condition in status.conditions)


def test_a_node_in_an_upgrade_is_named_with_its_cause() -> None:
    upgrading = ObservedNode(state="drain-required", label="old", cause="waits for a budget")
    status = status_with(upgrading)
    assert status.state == "notReady"
    assert true_conditions(status) == [
        *("Error", "NotReady", "Upgrading", "Reconciling", "Accepted"),
    ]
    words = "state-driver on c: waits for a budget"
    assert condition_of(status, "Error").reason == "OperandNotReady"
    assert message_of(status) == NOT_READY + words
    assert condition_of(status, "Ready").reason == "Error"
    assert message_of(status, "Upgrading") == f"1 of 2 nodes are done; {words}"


@pytest.mark.parametrize("pod_problem", [False, True])
def test_a_failed_node_degrades_the_policy(pod_problem: bool) -> None:
    problem = PodProblem(daemon_set=DRIVER_NAME, node="c", cause="CrashLoopBackOff")
    status = status_with(
        ObservedNode(state="upgrade-failed", cause="busy: sshd"),
        pod_problems=(problem,) if pod_problem else (),
    )
    upgrading = ["Upgrading"] if pod_problem else []
    assert true_conditions(status) == [
        *("Error", "NotReady", *upgrading, "Degraded", "Stalled", "Accepted"),
    ]
    assert message_of(status, "Degraded") == "state-driver on c: busy: sshd"
    assert ("state-driver on c: CrashLoopBackOff" in message_of(status)) is pod_problem


@pytest.mark.parametrize(
    ("observed", "cause"),
    [
        (ObservedNode(state="upgrade-required", skipped=True), ""),
        (ObservedNode(label="no driver"), "no driver is running yet"),
        (ObservedNode(state="upgrade-required"), "upgrade-required"),
        (
            ObservedNode(state="upgrade-done", label="other"),
            "has a different driver than its policy wants",
        ),
    ],
)
def test_a_node_without_a_cause_shows_its_state(observed: ObservedNode, cause: str) -> None:
    expected = f"{NOT_READY}state-driver on c: {cause}" if cause else ""
    assert message_of(status_with(observed)) == expected


def test_a_policy_whose_driver_works_waits_for_gpus_that_pods_can_have() -> None:
    label = HEALTHY["nodes"]["c"].label
    status = status_with(ObservedNode(state="upgrade-done", label=label, lacks_gpus=True))
    assert status.state == "notReady"
    assert (
        "; states not ready: [state-device-plugin]; state-device-plugin on c: a pod that asks"
        in (message_of(status))
    )
    assert not condition_of(status, "Upgrading").status
    in_upgrade = ObservedNode(state="drain-required", label="old", lacks_gpus=True)
    assert "state-device-plugin" not in message_of(status_with(in_upgrade))


def test_a_node_with_unknown_system_is_named() -> None:
    labels = {"nvidia.com/gpu.present": "true", "kubernetes.io/arch": "amd64"}
    situation = Situation([cluster_policy()], [NodeLabels(name="a", labels=labels)])
    assert message_of(only_status(situation)) == (
        f"{NOT_READY}state-driver on a: its operating system is unknown: label"
        " feature.node.kubernetes.io/system-os_release.ID is missing"
    )


def test_missing_outdated_and_failing_operands_are_named_in_order() -> None:
    problem = PodProblem(daemon_set="sluice-validator-agent", node="c", cause="ImagePullBackOff")
    sets = {
        "sluice-telemetry-agent": None,
        "sluice-discovery-agent": ObservedDaemonSet(generation=2),
        "sluice-validator-agent": ObservedDaemonSet(desired=4, updated=3, available=1),
    }
    assert message_of(status_with(None, sets, pod_problems=(problem,))) == (
        "ClusterPolicy is not ready; states not ready: [state-operator-validation"
        " state-dcgm-exporter gpu-feature-discovery]; state-operator-validation on c:"
        " ImagePullBackOff; state-operator-validation: 3 of 4 pods of"
        " DaemonSet/sluice-validator-agent are not available; state-operator-validation: 1 of 4"
        " pods of DaemonSet/sluice-validator-agent run an older version; state-dcgm-exporter:"
        " DaemonSet/sluice-telemetry-agent does not exist yet; gpu-feature-discovery:"
        " DaemonSet/sluice-discovery-agent has changed, and its controller has not observed the"
        " change yet"
    )


def test_agent_problems_do_not_affect_the_upgrading_condition() -> None:
    name = "sluice-discovery-agent"
    problems = tuple(
        PodProblem(daemon_set=name, node=f"cpu-{number}", cause="ImagePullBackOff")
        for number in range(4)
    )
    sets = {name: ObservedDaemonSet(desired=6, updated=6, available=2)}
    status = status_with(None, sets, pod_problems=problems)
    assert true_conditions(status) == ["Error", "NotReady", "Reconciling", "Accepted"]
    status = status_with(ObservedNode(state="drain-required"), sets, pod_problems=problems)
    assert message_of(status, "Upgrading") == (
        "1 of 2 nodes are done; state-driver on c: drain-required"
    )


def test_outdated_driver_pods_are_not_a_problem() -> None:
    outdated = ObservedDaemonSet(desired=2, updated=0, available=2)
    assert status_with(None, {DRIVER_NAME: outdated}).state == "ready"


def test_refused_objects_are_reported() -> None:
    key = f"DaemonSet/{DRIVER_NAME}"
    status = only_status(ONE_DRIVER, refused={key: "spec.template: Invalid value"})
    words = f"state-driver: the API server refused {key}: spec.template: Invalid value"
    assert (message_of(status), message_of(status, "Degraded")) == (NOT_READY + words, words)


def test_long_lists_of_problems_are_shortened() -> None:
    many = Situation([cluster_policy()], [node(f"n{number}") for number in range(9)])
    message = message_of(only_status(many, nodes={}))
    assert message.count("no driver is running yet") == 5
    assert message.endswith("; and 4 more")


@pytest.mark.parametrize(
    ("labels", "reason", "message"),
    [
        (True, "NoGPUNodes", "No GPU node found, watching for new nodes to join the cluster."),
        (False, "NFDLabelsMissing", "No NFD labels found"),
    ],
)
def test_without_gpu_nodes_the_policy_is_ready_with_a_reason(
    labels: bool, reason: str, message: str
) -> None:
    status = only_status(Situation([cluster_policy()], []), feature_labels=labels)
    assert status.state == "ready"
    assert condition_of(status, "Ready") == StatusCondition(
        type="Ready", status=True, reason=reason, message=message
    )


# Errors, warnings and notes


def test_an_error_names_field_value_and_remedy() -> None:
    policy = cluster_policy()
    put(policy["spec"], "driver.kernelModuleType", "closed")
    status = only_status(Situation([policy]))
    error, accepted = condition_of(status, "Error"), condition_of(status, "Accepted")
    assert (error.reason, accepted.status, accepted.reason) == ("ReconcileFailed", False, "Invalid")
    for words in ('spec.driver.kernelModuleType ("closed")', 'write one of "auto"'):
        assert words in error.message
        assert words in accepted.message


def test_warnings_are_listed_and_fields_without_effect_are_named() -> None:
    policy = cluster_policy(
        sandboxWorkloads={"enabled": True},
        gfd={"version": "1", "image": "i"},
        operator={"defaultRuntime": "crio"},
    )
    accepted = condition_of(only_status(Situation([policy])), "Accepted")
    assert (accepted.status, accepted.reason) == (True, "Warnings")
    assert "spec.sandboxWorkloads.enabled (true) is enabled, but" in accepted.message
    assert accepted.message.endswith(
        "; set without effect here: spec.operator (defaultRuntime), spec.gfd (image, version);"
        " docs/policies.md says why"
    )


def test_a_driver_that_cannot_be_rendered_is_the_cause() -> None:
    status = only_status(Situation([cluster_policy(driver={})], [UBUNTU]))
    assert "spec.driver.image names no image to run" in message_of(status)
    assert condition_of(status, "Degraded").status


# Several policies


def test_the_younger_policy_is_ignored_with_a_message() -> None:
    # The second policy has more than ten notes: its reason must come before them.
    (rendered,) = from_corpus("cluster-policy-rendered.yaml")
    objects = [cluster_policy(), rendered]
    for index, name in enumerate(("first", "second")):
        created = f"2026-01-01T00:00:0{index}Z"
        objects[index]["metadata"] = {"name": name, "uid": name, "creationTimestamp": created}
    status = statuses(Situation(objects))["second"]
    assert status.state == "ignored"
    assert message_of(status, "Ready").startswith('metadata.name ("second") is ignored: ')
    assert true_conditions(status) == ["NotReady", "Stalled", "Accepted"]


def test_a_driver_without_cluster_policy_support_is_disabled() -> None:
    status = statuses(Situation([cluster_policy(), nvidia_driver("a")]))["a"]
    assert status.state == "disabled"
    assert true_conditions(status) == ["Error", "NotReady", "Disabled", "Stalled", "Accepted"]
    assert condition_of(status, "Error").reason == "Reconciled"


RACKS = [node(name, rack="1") for name in "nm"]
IN_RACK = {"nodeSelector": {"rack": "1"}}


@pytest.mark.parametrize(
    ("objects", "reason", "words"),
    [
        (
            [
                cluster_policy(),
                nvidia_driver("a", nodeAffinity={"x": {}}, useOpenKernelModules=True),
            ],
            "Reconciled",
            "useNvidiaDriverCRD is not enabled in ClusterPolicy; ",
        ),
        (
            [crd_mode_policy(), *(nvidia_driver(name, default=True) for name in "ba")],
            "ReconcileFailed",
            "multiple default NVIDIADrivers found: [a b]; ",
        ),
        (
            [crd_mode_policy(), *(nvidia_driver(name, **IN_RACK) for name in "ba")],
            "ConflictingNodeSelector",
            "multiple NVIDIADrivers match the same node m: [a b]; ",
        ),
    ],
)
def test_messages_begin_with_the_gpu_operators_words(
    objects: list[dict[str, Any]], reason: str, words: str
) -> None:
    error = condition_of(statuses(Situation(objects, RACKS))["a"], "Error")
    assert error.reason == reason
    assert error.message.startswith(words)


def test_a_gpu_cluster_conflict_is_reported_first() -> None:
    parsed = parse_manifest("ClusterPolicy", cluster_policy(operator={"defaultRuntime": "crio"}))
    pools = assemble_pools([parsed], [UBUNTU], gpu_clusters=["gpu-cluster"])
    (status,) = policy_statuses(
        pools, ONE_DRIVER.placement(), ONE_DRIVER.rendering(), Observation()
    )
    assert (status.state, condition_of(status, "Error").reason) == ("notReady", "ReconcileFailed")
    assert message_of(status) == (
        'conflicting GPUCluster resource "gpu-cluster" detected; ClusterPolicy and GPUCluster'
        ' cannot co-exist; metadata.name ("cluster-policy") does not'
        " take effect: delete one of the two"
    )


def test_the_cluster_policy_is_not_ready_while_its_drivers_are_not() -> None:
    situation = Situation([crd_mode_policy(), nvidia_driver("a", default=True)], [UBUNTU])
    ready = statuses(situation)
    assert {name: status.state for name, status in ready.items()} == {
        "cluster-policy": "ready",
        "a": "ready",
    }
    assert message_of(ready["a"], "Ready") == "All resources have been successfully reconciled"
    upgrading = statuses(situation, nodes={"a": ObservedNode(state="wait-for-jobs-required")})
    assert condition_of(upgrading["a"], "Error").reason == "DriverNotReady"
    problem = "state-driver on a: wait-for-jobs-required"
    assert message_of(upgrading["a"]) == f"Waiting for driver pod to be ready; {problem}"
    assert message_of(upgrading["cluster-policy"]) == (
        "ClusterPolicy is not ready; NVIDIADriver upgrade has not completed; one or more"
        f" NVIDIADriver-owned Nodes are marked pending, in-progress, or failed; {problem}"
    )


def test_the_cluster_policy_names_the_nvidiadriver_whose_field_is_wrong() -> None:
    broken = {
        "apiVersion": "sluice.dev/v1alpha1",
        "kind": "RolloutStrategy",
        "metadata": {"name": "s"},
        "spec": {"pool": "nvidiadriver-a", "retries": "many"},
    }
    objects = [crd_mode_policy(), nvidia_driver("a", default=True), broken]
    found = statuses(Situation(objects, [UBUNTU]), nodes={})
    theirs = "state-driver: NVIDIADriver a: nothing new starts until this is fixed: "
    assert theirs in message_of(found["cluster-policy"])
    assert condition_of(found["cluster-policy"], "Degraded").message.startswith(theirs)
    assert "NVIDIADriver a" not in message_of(found["a"])


def test_an_invalid_strategy_holds_its_pool_and_reports_why() -> None:
    broken = {
        "apiVersion": "sluice.dev/v1alpha1",
        "kind": "RolloutStrategy",
        "metadata": {"name": "s"},
        "spec": {"pool": "clusterpolicy-cluster-policy", "retries": "many"},
    }
    found = statuses(Situation([cluster_policy(), broken], [UBUNTU]), nodes={})
    assert found["s"].state == ""
    assert true_conditions(found["s"]) == ["Stalled"]
    assert "spec.retries" in message_of(found["s"], "Stalled")
    assert "spec.retries" in message_of(found["s"], "Accepted")
    words = "nothing new starts until this is fixed: spec.retries of RolloutStrategy"
    assert words in message_of(found["cluster-policy"])
    assert "spec.retries" in message_of(found["cluster-policy"], "Stalled")


def test_objects_being_deleted_have_no_status() -> None:
    policy = cluster_policy()
    policy["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert statuses(Situation([policy])) == {}


def test_every_state_is_allowed_by_its_kind() -> None:
    for situation in (ONE_DRIVER, Situation([cluster_policy(), nvidia_driver("a")])):
        for status in statuses(situation).values():
            shape = next(
                f.shape for f in KINDS[status.kind].status_shape.fields if f.name == "state"
            )
            assert status.state in shape.choices


def test_a_condition_keeps_its_transition_time_while_unchanged() -> None:
    failed = status_with(ObservedNode(state="upgrade-failed"))
    times = [f"2026-01-01T00:00:0{second}Z" for second in range(3)]
    first = updated_conditions((), only_status(ONE_DRIVER), now=times[0])
    assert {condition.last_transition_time for condition in first} == {times[0]}
    second = updated_conditions(first, failed, now=times[1])
    changed = {each.type for each in second if each.last_transition_time == times[1]}
    assert changed == {"Ready", "Error", "NotReady", "Degraded", "Stalled"}
    foreign = Condition(type="Else", status="True", last_transition_time="x", reason="r")
    assert updated_conditions((*second, foreign), failed, now=times[2]) == second
