"""Plans from snapshots: what this role adds to rendering and statuses; problems of pods."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from libs.contracts.node import SKIP_LABEL, STATE_LABEL, NodeRecord
from libs.kube.views import Pod
from libs.policy.kinds.common import EnvVar
from libs.policy.owners import DEPLOY_OPERANDS, DEPLOY_PLUGIN
from libs.policy.readiness import PodProblem
from libs.runtime.settings import load
from services.driver.cluster import resources
from services.driver.cluster.plan import (
    MISSING_DEFINITION,
    ObjectKey,
    OperandPlan,
    find_pod_problems,
)
from services.driver.cluster.role import DriverClusterSettings
from tests.builders import fleet, objects
from tests.builders.fleet import written
from tests.builders.objects import seen
from tests.unit.driver.cluster.builders import (
    POLICY_KEY,
    live_object,
    node,
    plan,
    with_allocatable,
    with_handlers,
)
from tests.unit.policy.situations import SETTINGS, cluster_policy, from_corpus

OFF = {"enabled": False}
FAILED = {"nvidia.com/gpu-driver-upgrade-state": "upgrade-failed"}


def message_of(operands: OperandPlan, kind: str) -> str:
    (found,) = [
        each.message for each in operands.statuses[POLICY_KEY].conditions if each.type == kind
    ]
    return found


def test_a_policy_that_asks_for_an_operand_that_does_not_exist_names_its_section() -> None:
    status = plan(cluster_policy(cdi=OFF)).statuses[POLICY_KEY]
    (condition,) = [each for each in status.conditions if each.type == "MissingOperands"]
    assert (condition.status, condition.reason) == (True, "NotBuilt")
    assert condition.message.startswith("spec.toolkit is switched on")
    assert "; " not in condition.message
    assert status.state == "notReady"


def test_runtime_classes_exist_only_where_a_node_knows_the_handler() -> None:
    def classes(*nodes: resources.Node, **reported: tuple[str, ...]) -> list[str]:
        operands = plan(nodes=nodes, handlers={f"uid-{name}": reported[name] for name in reported})
        return [name for kind, name in operands.objects if kind == "RuntimeClass"]

    assert classes(node()) == []
    assert classes(with_handlers(node(), "runc", "nvidia"), node("b")) == ["nvidia"]
    absent = {"nvidia.com/gpu.present": "false"}
    assert classes(with_handlers(node(**absent), "nvidia")) == []
    assert classes(node(**absent), a=("nvidia",)) == []
    # With containerd 1.7 only the driver agent says it.
    assert classes(node(), a=("nvidia-cdi",), deleted=("nvidia",)) == ["nvidia-cdi"]
    assert classes(with_handlers(node(), "nvidia-legacy")) == []


def test_nodes_that_wait_for_an_artefact_are_named_with_its_key() -> None:
    (policy,) = from_corpus("gpu-cluster-policy.yaml")
    policy["spec"]["devicePlugin"] = OFF

    def error(**config_maps: Mapping[str, str]) -> str:
        maps = {name.replace("_", "-"): data for name, data in config_maps.items()}
        operands = plan(policy, nodes=(node("n"),), config_maps=maps)
        (status,) = operands.statuses.values()
        (found,) = [each for each in status.conditions if each.type == "Error"]
        return found.message

    driver, cuda = "driver-580.95.05-ubuntu22.04-amd64", "cuda-13.0-ubuntu22.04-amd64"
    line = f"sha256:{'a' * 64} run a.run"
    assert "state-driver on n: there is no ConfigMap sluice-driver-artefacts" in error()
    assert f"names no artefact {driver}" in error(sluice_driver_artefacts={})
    assert "line 1 is not of the form" in error(sluice_driver_artefacts={driver: "x"})
    assert f"names no artefact {cuda}" in error(sluice_driver_artefacts={driver: line})
    named = error(sluice_driver_artefacts={driver: line, cuda: line})
    assert "sluice-driver-artefacts" not in named


def lacking(*nodes: resources.Node, **devices: Any) -> list[str]:
    """Return the nodes on which a pod gets no GPU, according to the status."""
    policy = cluster_policy(**devices)
    wanted = [each.object for each in plan(policy, nodes=nodes).objects.values()]
    live = tuple(live_object(each) for each in wanted if each["kind"] == "DaemonSet")
    message = message_of(plan(policy, nodes=nodes, daemon_sets=live), "Error")
    return re.findall(r"state-device-plugin on (\w+): a pod that asks for a GPU gets none", message)


def done(name: str = "a", **labels: str) -> resources.Node:
    return node(name, **{STATE_LABEL: "upgrade-done", **labels})


@pytest.mark.parametrize(
    ("counts", "lacks"),
    [
        ({}, True),
        ({"gpu": "0"}, True),
        ({"gpu": "0", "mig-1g.10gb": "0"}, True),
        ({"hostdev": "4"}, True),
        ({"gpu": "1"}, False),
        ({"gpu.shared": "4"}, False),
        ({"gpu": "0", "mig-1g.10gb": "7"}, False),
    ],
)
def test_a_policy_is_not_ready_while_a_pod_on_a_node_gets_no_gpu(
    counts: dict[str, str], lacks: bool
) -> None:
    nodes = with_allocatable(done(), **counts), with_allocatable(done("b"), gpu="8")
    assert lacking(*nodes) == (["a"] if lacks else [])


@pytest.mark.parametrize(
    "labels",
    [
        {STATE_LABEL: "pod-restart-required"},
        {SKIP_LABEL: "true"},
        {DEPLOY_PLUGIN: "false"},
        {DEPLOY_OPERANDS: "false"},
    ],
)
def test_nodes_that_do_not_count_need_no_gpus(labels: dict[str, str]) -> None:
    assert lacking(done(), done("b", **labels)) == ["a"]


def test_without_the_device_plugin_of_sluice_nodes_need_no_gpus_of_it() -> None:
    assert lacking(done(), devicePlugin=OFF) == []


def test_only_whether_there_are_gpus_is_a_change_of_a_node() -> None:
    assert with_allocatable(done(), gpu="8").offers_gpus
    assert not with_allocatable(done(), gpu="0").offers_gpus
    assert with_allocatable(done(), gpu="8").status.allocatable == {"nvidia.com/gpu": "8"}


@pytest.mark.parametrize(
    ("record", "cause"),
    [
        (fleet.record(cause="busy: sshd"), "busy: sshd"),
        (None, "upgrade-failed"),
        ("{", "the node record is malformed: "),
    ],
    ids=["a record with a cause", "no record", "a malformed record"],
)
def test_the_record_of_a_failed_node_has_the_cause(
    record: NodeRecord | str | None, cause: str
) -> None:
    message = message_of(plan(nodes=(node(record=record, **FAILED),)), "Degraded")
    assert message.startswith(f"state-driver on a: {cause}")


def test_of_a_node_only_labels_and_record_are_kept() -> None:
    fields = [{"manager": "kubelet", "operation": "Update", "fieldsV1": {}}]
    whole = objects.node(annotations={**written("{}"), "much": "x" * 1000}, managedFields=fields)
    kept = seen(resources.Node, {**whole, "status": {"images": ["x" * 1000]}})
    assert kept.record == "{}"
    assert kept.metadata.annotations == {"sluice.dev/upgrade": "{}"}
    assert kept.metadata.managed_fields == ()


def test_the_status_of_daemon_sets_is_observed() -> None:
    status = {"desiredNumberScheduled": 1, "updatedNumberScheduled": 1}
    daemon_sets = tuple(
        live_object({**rendered.object, "status": status})
        for rendered in plan().objects.values()
        if rendered.kind == "DaemonSet" and not rendered.driver
    )
    words = "1 of 1 pods of DaemonSet/sluice-validator-agent are not available"
    assert words in message_of(plan(daemon_sets=daemon_sets), "Error")


def test_only_a_valid_cluster_policy_decides_about_deletion_and_has_a_target() -> None:
    operands = plan()
    assert (operands.decides, list(operands.targets)) == (True, ["clusterpolicy-cluster-policy"])
    invalid = plan(cluster_policy(driver={"version": "1"}))
    assert (invalid.decides, invalid.targets) == (False, {})
    metadata, spec = {"name": "s", "uid": "s"}, {"pool": "unknown"}
    alone = plan({"kind": "RolloutStrategy", "metadata": metadata, "spec": spec})
    assert not alone.decides
    assert list(alone.objects) == [ObjectKey("ConfigMap", "sluice-driver-startup-probe")]


@pytest.mark.parametrize("has_monitors", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_a_monitor_is_planned_where_its_kind_exists_and_missed_where_it_does_not(
    enabled: bool, has_monitors: bool
) -> None:
    policy = cluster_policy(dcgmExporter={"serviceMonitor": {"enabled": enabled}})
    operands = plan(policy, has_monitors=has_monitors)
    planned = ObjectKey("ServiceMonitor", "nvidia-dcgm-exporter") in operands.objects
    conditions = {each.type for each in operands.statuses[POLICY_KEY].conditions}
    assert planned is (enabled and has_monitors)
    assert operands.lacks_monitors is (enabled and not has_monitors)
    assert (MISSING_DEFINITION in conditions) is operands.lacks_monitors
    assert ObjectKey("Service", "nvidia-dcgm-exporter") in operands.objects


def test_settings_are_read_from_the_environment() -> None:
    images = {
        f"SLUICE_IMAGES_{name.upper()}": image
        for name, image in msgspec.structs.asdict(SETTINGS.images).items()
    }
    environ = {
        "SLUICE_NAMESPACE": SETTINGS.namespace,
        **images,
        "SLUICE_AGENT_ENV": "SLUICE_NATS_URL=tls://nats:4222?a=b,SLUICE_X=",
        "SLUICE_TELEMETRY_ENV": "SLUICE_HOSTNAME_LABEL=hostname",
        "SLUICE_PULL_SECRETS": "a,b",
    }
    settings = load(DriverClusterSettings, environ=environ).render_settings()
    assert (settings.namespace, settings.images) == (SETTINGS.namespace, SETTINGS.images)
    assert settings.pull_secrets == ("a", "b")
    assert settings.env == (
        EnvVar(name="SLUICE_NATS_URL", value="tls://nats:4222?a=b"),
        EnvVar(name="SLUICE_X", value=""),
    )
    assert settings.telemetry_env == (EnvVar(name="SLUICE_HOSTNAME_LABEL", value="hostname"),)


def pod(status: dict[str, Any], *, owner: str = "u", **metadata: Any) -> Pod:
    owners = [{"kind": "DaemonSet", "name": "d", "uid": owner}]
    meta = {"ownerReferences": owners, **metadata}
    return seen(Pod, objects.pod(node="n", status=status, meta=meta))


def waiting(reason: str, message: str = "", *, kind: str = "containerStatuses") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {kind: [{"name": "c", "state": state}]}


BROKEN = waiting("ImagePullBackOff", "not found")
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes fit"}


@pytest.mark.parametrize(
    ("pod", "cause"),
    [
        (pod(BROKEN), "c: ImagePullBackOff: not found"),
        (pod(waiting("CrashLoopBackOff", kind="initContainerStatuses")), "c: CrashLoopBackOff"),
        (pod({"phase": "Failed", "reason": "Evicted"}), "Evicted"),
        (pod({"conditions": [UNSCHEDULED]}), "0/3 nodes fit"),
        (pod(waiting("ContainerCreating")), ""),
        (pod({"phase": "Running"}), ""),
        (pod(BROKEN, deletionTimestamp="2027-01-15T08:00:00Z"), ""),
        (pod(BROKEN, owner="another"), ""),
    ],
)
def test_pods_that_do_not_start_without_help_are_reported(pod: Pod, cause: str) -> None:
    expected = [PodProblem(daemon_set="d", node="n", cause=cause)] if cause else []
    assert list(find_pod_problems("d", "u", [pod])) == expected
