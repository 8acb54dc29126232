"""Status and conditions of policies."""

from typing import Any

import pytest

from libs.policy.kinds import KINDS
from libs.policy.kinds.common import Condition
from libs.policy.manifests import parse_manifest
from libs.policy.owners import NodeLabels
from libs.policy.pools import assemble_pools
from libs.policy.readiness import Observation, ObservedDaemonSet, ObservedNode, PodProblem
from libs.policy.status import PolicyStatus, StatusCondition, policy_statuses, updated_conditions
from tests.unit.policy.fields import put
from tests.unit.policy.situations import (
    UBUNTU,
    Situation,
    cluster_policy,
    crd_mode_policy,
    from_corpus,
    node,
    nvidia_driver,
)

ONE = Situation([cluster_policy()], [UBUNTU, node("c")])
READY = "ClusterPolicy is ready as all resources have been successfully reconciled"
NOT_READY = "ClusterPolicy is not ready; states not ready: [state-driver]; "


def healthy_observation(situation: Situation) -> dict[str, Any]:
    """Return an observation in which everything is ready."""
    rendering, placement = situation.rendering(), situation.placement()
    labels = {
        (made.pool, made.driver.variant): made.driver.label
        for made in rendering.objects
        if made.driver
    }
    owners = situation.pools().owners
    return {
        "daemon_sets": {
            made.name: ObservedDaemonSet(desired=2, updated=2, available=2)
            for made in rendering.objects
            if made.kind == "DaemonSet"
        },
        "nodes": {
            name: ObservedNode(state="upgrade-done", label=labels.get((owners[name], variant), ""))
            for name, variant in placement.nodes.items()
        },
    }


def statuses(situation: Situation, **seen: Any) -> dict[str, PolicyStatus]:
    made = policy_statuses(
        situation.pools(),
        situation.placement(),
        situation.rendering(),
        Observation(**{**healthy_observation(situation), **seen}),
    )
    return {status.name: status for status in made}


def only_status(situation: Situation, **seen: Any) -> PolicyStatus:
    (status,) = statuses(situation, **seen).values()
    return status


def condition_of(status: PolicyStatus, kind: str) -> StatusCondition:
    (found,) = [one for one in status.conditions if one.type == kind]
    return found


def true_conditions(status: PolicyStatus) -> list[str]:
    return [one.type for one in status.conditions if one.status]


def driver_name(situation: Situation) -> str:
    (name,) = [made.name for made in situation.rendering().objects if made.driver]
    return name


def test_a_policy_whose_nodes_are_done_is_ready() -> None:
    status = only_status(ONE)
    assert status.state == "ready"
    assert true_conditions(status) == ["Ready", "Accepted"]
    ready, error = condition_of(status, "Ready"), condition_of(status, "Error")
    assert (ready.reason, ready.message) == ("Reconciled", READY)
    assert (error.reason, error.message) == ("Ready", "")


def test_every_condition_type_is_present() -> None:
    words = ["Ready", "Error", "NotReady", "Upgrading", "Degraded", "Disabled", "Accepted"]
    assert [one.type for one in only_status(ONE).conditions] == words
    assert all(one.reason for one in only_status(ONE).conditions)


def test_a_node_in_an_upgrade_is_named_with_its_cause() -> None:
    nodes = {**healthy_observation(ONE)["nodes"]}
    nodes["c"] = ObservedNode(state="drain-required", label="old", cause="waits for a budget")
    status = only_status(ONE, nodes=nodes)
    assert status.state == "notReady"
    assert true_conditions(status) == ["Error", "NotReady", "Upgrading", "Accepted"]
    error = condition_of(status, "Error")
    words = "state-driver on c: waits for a budget"
    assert (error.reason, error.message) == ("OperandNotReady", NOT_READY + words)
    assert condition_of(status, "Ready").reason == "Error"
    assert condition_of(status, "Upgrading").message == f"1 of 2 nodes are done; {words}"


def test_a_failed_node_degrades_the_policy() -> None:
    nodes = {
        **healthy_observation(ONE)["nodes"],
        "c": ObservedNode(state="upgrade-failed", cause="busy: sshd"),
    }
    status = only_status(ONE, nodes=nodes)
    assert true_conditions(status) == ["Error", "NotReady", "Degraded", "Accepted"]
    assert condition_of(status, "Degraded").message == "state-driver on c: busy: sshd"


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        (ObservedNode(), "no driver is running yet"),
        (ObservedNode(state="upgrade-required"), "upgrade-required"),
        (
            ObservedNode(state="upgrade-done", label="other"),
            "has a different driver than its policy wants",
        ),
    ],
)
def test_a_node_without_a_cause_shows_its_state(seen: ObservedNode, cause: str) -> None:
    status = only_status(ONE, nodes={**healthy_observation(ONE)["nodes"], "c": seen})
    assert condition_of(status, "Error").message == f"{NOT_READY}state-driver on c: {cause}"


def test_a_skipped_node_does_not_prevent_readiness() -> None:
    nodes = {
        **healthy_observation(ONE)["nodes"],
        "c": ObservedNode(state="upgrade-required", skipped=True),
    }
    assert only_status(ONE, nodes=nodes).state == "ready"


def test_a_node_with_unknown_system_is_named() -> None:
    labels = {"nvidia.com/gpu.present": "true", "kubernetes.io/arch": "amd64"}
    bare = Situation([cluster_policy()], [NodeLabels(name="a", labels=labels)])
    assert condition_of(only_status(bare), "Error").message == (
        f"{NOT_READY}state-driver on a: its operating system is unknown: label"
        " feature.node.kubernetes.io/system-os_release.ID is missing"
    )


def test_missing_outdated_and_failing_operands_are_named() -> None:
    sets = {**healthy_observation(ONE)["daemon_sets"]}
    del sets["nvidia-dcgm-exporter"]
    sets["gpu-feature-discovery"] = ObservedDaemonSet(generation=2)
    sets["nvidia-device-plugin-daemonset"] = ObservedDaemonSet(desired=4, updated=3, available=1)
    trouble = PodProblem(
        daemon_set="nvidia-device-plugin-daemonset", node="c", cause="ImagePullBackOff"
    )
    status = only_status(ONE, daemon_sets=sets, pod_problems=(trouble,))
    assert condition_of(status, "Error").message == (
        "ClusterPolicy is not ready; states not ready: [state-device-plugin state-dcgm-exporter"
        " gpu-feature-discovery]; state-device-plugin on c: ImagePullBackOff; state-device-plugin:"
        " 3 of 4 pods of DaemonSet/nvidia-device-plugin-daemonset are not available;"
        " state-device-plugin: 1 of 4 pods of DaemonSet/nvidia-device-plugin-daemonset run an"
        " older version; state-dcgm-exporter: DaemonSet/nvidia-dcgm-exporter does not exist yet;"
        " gpu-feature-discovery: DaemonSet/gpu-feature-discovery has changed, and its controller"
        " has not observed the change yet"
    )


def test_operands_that_are_not_ready_are_named_in_order() -> None:
    sets = {**healthy_observation(ONE)["daemon_sets"]}
    del sets["gpu-feature-discovery"], sets["nvidia-container-toolkit-daemonset"]
    status = only_status(ONE, daemon_sets=sets, nodes={})
    assert condition_of(status, "Error").message.startswith(
        "ClusterPolicy is not ready; states not ready:"
        " [state-driver state-container-toolkit gpu-feature-discovery]; "
    )


def test_agent_problems_do_not_affect_the_upgrading_condition() -> None:
    elsewhere = [
        PodProblem(
            daemon_set="gpu-feature-discovery", node=f"cpu-{number}", cause="ImagePullBackOff"
        )
        for number in range(4)
    ]
    sets = {**healthy_observation(ONE)["daemon_sets"]}
    sets["gpu-feature-discovery"] = ObservedDaemonSet(desired=6, updated=6, available=2)
    status = only_status(ONE, daemon_sets=sets, pod_problems=tuple(elsewhere))
    assert true_conditions(status) == ["Error", "NotReady", "Accepted"]
    nodes = {**healthy_observation(ONE)["nodes"], "c": ObservedNode(state="drain-required")}
    status = only_status(ONE, daemon_sets=sets, pod_problems=tuple(elsewhere), nodes=nodes)
    assert condition_of(status, "Upgrading").message == (
        "1 of 2 nodes are done; state-driver on c: drain-required"
    )


def test_a_failed_node_is_degraded_even_with_a_pod_problem() -> None:
    nodes = {
        **healthy_observation(ONE)["nodes"],
        "c": ObservedNode(state="upgrade-failed", cause="no headers"),
    }
    trouble = PodProblem(daemon_set=driver_name(ONE), node="c", cause="CrashLoopBackOff")
    status = only_status(ONE, nodes=nodes, pod_problems=(trouble,))
    assert condition_of(status, "Degraded").message == "state-driver on c: no headers"
    assert "state-driver on c: CrashLoopBackOff" in condition_of(status, "Error").message


def test_outdated_driver_pods_are_not_a_problem() -> None:
    sets = {**healthy_observation(ONE)["daemon_sets"]}
    sets[driver_name(ONE)] = ObservedDaemonSet(desired=2, updated=0, available=2)
    assert only_status(ONE, daemon_sets=sets).state == "ready"


def test_refused_objects_are_reported() -> None:
    key = f"DaemonSet/{driver_name(ONE)}"
    status = only_status(ONE, refused={key: "spec.template: Invalid value"})
    words = f"state-driver: the API server refused {key}: spec.template: Invalid value"
    assert condition_of(status, "Error").message == NOT_READY + words
    assert condition_of(status, "Degraded").message == words


def test_long_lists_of_problems_are_shortened() -> None:
    many = Situation([cluster_policy()], [node(f"n{number}") for number in range(9)])
    message = condition_of(only_status(many, nodes={}), "Error").message
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
    ready = condition_of(status, "Ready")
    assert (ready.status, ready.reason, ready.message) == (True, reason, message)


# Errors, warnings and notes


def test_an_error_names_field_value_and_remedy() -> None:
    policy = cluster_policy()
    put(policy["spec"], "driver.kernelModuleType", "closed")
    status = only_status(Situation([policy]))
    error, accepted = condition_of(status, "Error"), condition_of(status, "Accepted")
    assert error.reason == "ReconcileFailed"
    for words in ('spec.driver.kernelModuleType ("closed")', 'write one of "auto"'):
        assert words in error.message
        assert words in accepted.message
    assert (accepted.status, accepted.reason) == (False, "Invalid")


def test_warnings_are_listed_and_notes_are_counted() -> None:
    policy = cluster_policy(
        nodeStatusExporter={"enabled": True}, toolkit={"version": "1", "image": "i"}
    )
    accepted = condition_of(only_status(Situation([policy])), "Accepted")
    assert (accepted.status, accepted.reason) == (True, "Warnings")
    assert "spec.nodeStatusExporter.enabled (true) is enabled, but" in accepted.message
    assert accepted.message.endswith("; 2 fields that are set have no effect here")
    assert "spec.toolkit" not in accepted.message


def test_a_driver_that_cannot_be_rendered_is_the_cause() -> None:
    status = only_status(Situation([cluster_policy(driver={})], [UBUNTU]))
    assert "spec.driver.image names no image to run" in condition_of(status, "Error").message
    assert condition_of(status, "Degraded").status


# Several policies


def test_the_younger_policy_is_ignored_with_a_message() -> None:
    # With so many notes on the second that the reason would not be among the first ten findings.
    (rendered,) = from_corpus("cluster-policy-rendered.yaml")
    objects = [cluster_policy(), rendered]
    for at, name in enumerate(("first", "second")):
        stamp = f"2026-01-01T00:00:0{at}Z"
        objects[at]["metadata"] = {"name": name, "uid": name, "creationTimestamp": stamp}
    second = statuses(Situation(objects))["second"]
    assert second.state == "ignored"
    assert condition_of(second, "Ready").message == (
        'metadata.name ("second") is ignored: ClusterPolicy "first" is older, and only one'
        ' cluster-wide policy takes effect: delete this one, or ClusterPolicy "first"'
    )
    assert true_conditions(second) == ["NotReady", "Accepted"]


def test_a_driver_without_cluster_policy_support_is_disabled() -> None:
    status = statuses(Situation([cluster_policy(), nvidia_driver("a")]))["a"]
    assert status.state == "disabled"
    assert true_conditions(status) == ["Error", "NotReady", "Disabled", "Accepted"]
    error = condition_of(status, "Error")
    assert error.reason == "Reconciled"
    assert "useNvidiaDriverCRD is not enabled in ClusterPolicy" in error.message


def test_conflicting_drivers_name_the_node() -> None:
    objects = [
        crd_mode_policy(),
        *(nvidia_driver(name, nodeSelector={"rack": "1"}) for name in "yx"),
    ]
    made = statuses(Situation(objects, [node(name, rack="1") for name in "nm"]))
    for name in "xy":
        assert made[name].state == "notReady"
        error = condition_of(made[name], "Error")
        assert error.reason == "ConflictingNodeSelector"
        words = "multiple NVIDIADrivers match the same node m: [x y]; "
        assert error.message.startswith(words)


def test_a_gpu_cluster_conflict_is_reported_first() -> None:
    read_policy = parse_manifest(
        "ClusterPolicy", cluster_policy(operator={"defaultRuntime": "crio"})
    )
    both = assemble_pools([read_policy], [UBUNTU], gpu_clusters=["gpu-cluster"])
    (status,) = policy_statuses(both, ONE.placement(), ONE.rendering(), Observation())
    error = condition_of(status, "Error")
    assert (status.state, error.reason) == ("notReady", "ReconcileFailed")
    assert error.message == (
        'conflicting GPUCluster resource "gpu-cluster" detected; ClusterPolicy and GPUCluster'
        ' cannot co-exist; metadata.name ("cluster-policy") does not'
        " take effect: delete one of the two"
    )


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        (
            [
                cluster_policy(),
                nvidia_driver("a", nodeAffinity={"x": {}}, useOpenKernelModules=True),
            ],
            "useNvidiaDriverCRD is not enabled in ClusterPolicy; ",
        ),
        (
            [crd_mode_policy(), *(nvidia_driver(name, default=True) for name in "ba")],
            "multiple default NVIDIADrivers found: [a b]; ",
        ),
    ],
)
def test_messages_begin_with_the_gpu_operators_words(
    objects: list[dict[str, Any]], words: str
) -> None:
    assert condition_of(statuses(Situation(objects))["a"], "Error").message.startswith(words)


def test_the_cluster_policy_is_not_ready_while_its_drivers_are_not() -> None:
    both = Situation([crd_mode_policy(), nvidia_driver("a", default=True)], [UBUNTU])
    done = statuses(both)
    assert {name: one.state for name, one in done.items()} == {
        "cluster-policy": "ready",
        "a": "ready",
    }
    assert (
        condition_of(done["a"], "Ready").message
        == "All resources have been successfully reconciled"
    )
    behind = statuses(both, nodes={"a": ObservedNode(state="wait-for-jobs-required")})
    error = condition_of(behind["a"], "Error")
    assert (error.reason, error.message) == (
        "DriverNotReady",
        "Waiting for driver pod to be ready; state-driver on a: wait-for-jobs-required",
    )
    assert condition_of(behind["cluster-policy"], "Error").message == (
        "ClusterPolicy is not ready; NVIDIADriver upgrade has not completed; one or more"
        " NVIDIADriver-owned Nodes are marked pending, in-progress, or failed;"
        " state-driver on a: wait-for-jobs-required"
    )


def test_an_invalid_strategy_holds_its_pool_and_reports_why() -> None:
    broken = {
        "apiVersion": "sluice.dev/v1alpha1",
        "kind": "RolloutStrategy",
        "metadata": {"name": "s"},
        "spec": {"pool": "clusterpolicy-cluster-policy", "retries": "many"},
    }
    held = Situation([cluster_policy(), broken], [UBUNTU])
    made = statuses(held, nodes={})
    strategy = made["s"]
    assert (strategy.state, [one.type for one in strategy.conditions]) == ("", ["Accepted"])
    assert "spec.retries" in condition_of(strategy, "Accepted").message
    words = "nothing new starts until this is fixed: spec.retries of RolloutStrategy"
    assert words in condition_of(made["cluster-policy"], "Error").message


def test_objects_being_deleted_have_no_status() -> None:
    policy = cluster_policy()
    policy["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert statuses(Situation([policy])) == {}


def test_every_state_is_allowed_by_its_kind() -> None:
    for situation in (ONE, Situation([cluster_policy(), nvidia_driver("a")])):
        for status in statuses(situation).values():
            shape = next(
                f.shape for f in KINDS[status.kind].status_shape.fields if f.name == "state"
            )
            assert status.state in shape.choices


# Times


def test_a_condition_keeps_its_transition_time_while_unchanged() -> None:
    nodes = {**healthy_observation(ONE)["nodes"], "c": ObservedNode(state="upgrade-failed")}
    first = updated_conditions((), only_status(ONE), now="2026-01-01T00:00:01Z")
    assert {one.last_transition_time for one in first} == {"2026-01-01T00:00:01Z"}
    second = updated_conditions(first, only_status(ONE, nodes=nodes), now="2026-01-01T00:00:02Z")
    changed = {one.type for one in second if one.last_transition_time == "2026-01-01T00:00:02Z"}
    assert changed == {"Ready", "Error", "NotReady", "Degraded"}
    foreign = Condition(type="Else", status="True", last_transition_time="x", reason="r")
    again = updated_conditions(
        (*second, foreign), only_status(ONE, nodes=nodes), now="2026-01-01T00:00:03Z"
    )
    assert again == second
