"""From what is there to what is wanted; what this role adds to the library's word."""

import msgspec

from libs.contracts.message import encode
from libs.contracts.node import NodeRecord
from libs.policy.kinds.common import EnvVar
from libs.runtime.settings import load
from services.driver.cluster import resources
from services.driver.cluster.plan import ObjectKey, OperandPlan
from services.driver.cluster.role import DriverClusterSettings
from tests.unit.driver.cluster.builders import live_object, node, plan
from tests.unit.policy.situations import SETTINGS, cluster_policy, crd_mode_policy, from_corpus

FAILED = {"nvidia.com/gpu-driver-upgrade-state": "upgrade-failed"}


def words(made: OperandPlan, kind: str) -> str:
    status = made.statuses[ObjectKey("ClusterPolicy", "cluster-policy")]
    (found,) = [one.message for one in status.conditions if one.type == kind]
    return found


def test_what_the_device_plugin_is_missing_from() -> None:
    kinds = [plan(), plan(crd_mode_policy()), plan(*from_corpus("gpu-cluster-policy.yaml"))]
    for made in kinds:
        names = {key.name for key in made.objects}
        assert "nvidia-device-plugin-daemonset" not in names
        validator = made.objects[ObjectKey("DaemonSet", "nvidia-operator-validator")].object
        (container,) = validator["spec"]["template"]["spec"]["containers"]
        env = {one["name"]: one.get("value") for one in container["env"]}
        assert env["SLUICE_CHECK_PLUGIN"] == "false"
        said = [one for status in made.statuses.values() for one in status.conditions]
        (condition,) = [one for one in said if one.type == "DevicePlugin"]
        assert (condition.status, condition.reason) == (False, "NotBuilt")


def test_a_failed_node_says_why_by_its_record() -> None:
    record = encode(NodeRecord(node_uid="u", epoch=1, token=1, cause="busy: sshd")).decode()
    said = words(plan(nodes=(node(record=record, **FAILED),)), "Degraded")
    assert said == "state-driver on a: busy: sshd"
    said = words(plan(nodes=(node(**FAILED),)), "Degraded")
    assert said == "state-driver on a: upgrade-failed"
    said = words(plan(nodes=(node(record="{", **FAILED),)), "Degraded")
    assert said.startswith("state-driver on a: the node record is malformed: ")


def test_of_a_node_only_what_counts_is_kept() -> None:
    annotations = {"sluice.dev/upgrade": "{}", "much": "x" * 1000}
    fields = [{"manager": "kubelet", "operation": "Update", "fieldsV1": {}}]
    metadata = {"name": "a", "annotations": annotations, "managedFields": fields}
    text = msgspec.json.encode({"metadata": metadata, "status": {"images": ["x" * 1000]}})
    one = msgspec.json.decode(text, type=resources.Node)
    assert one.record == "{}"
    assert one.metadata.annotations == {"sluice.dev/upgrade": "{}"}
    assert one.metadata.managed_fields == ()


def test_daemon_sets_are_seen_as_their_controllers_see_them() -> None:
    made = plan()
    sets = tuple(
        live_object(
            {**one.object, "status": {"desiredNumberScheduled": 1, "updatedNumberScheduled": 1}}
        )
        for one in made.objects.values()
        if one.kind == "DaemonSet" and not one.driver
    )
    seen = plan(daemon_sets=sets)
    assert "1 of 1 pods of DaemonSet/gpu-feature-discovery are not available" in words(
        seen, "Error"
    )


def test_only_a_cluster_policy_decides_about_deletion() -> None:
    assert plan().decides
    assert not plan(cluster_policy(driver={"version": "1"})).decides
    strategy = {
        "kind": "RolloutStrategy",
        "metadata": {"name": "s", "uid": "s"},
        "spec": {"pool": "nobodys"},
    }
    alone = plan(strategy)
    assert not alone.decides
    assert ObjectKey("DaemonSet", "gpu-feature-discovery") in alone.objects


def test_a_pool_that_is_held_has_no_target() -> None:
    assert list(plan().targets) == ["clusterpolicy-cluster-policy"]
    assert plan(cluster_policy(driver={"version": "1"})).targets == {}


def test_settings_become_those_of_the_operands() -> None:
    environ = {
        "SLUICE_NAMESPACE": SETTINGS.namespace,
        "SLUICE_IMAGES_DISCOVERY": SETTINGS.images.discovery,
        "SLUICE_IMAGES_DRIVER": SETTINGS.images.driver,
        "SLUICE_IMAGES_VALIDATOR": SETTINGS.images.validator,
        "SLUICE_IMAGES_TELEMETRY": SETTINGS.images.telemetry,
        "SLUICE_AGENT_ENV": "SLUICE_NATS_URL=tls://nats:4222?a=b,SLUICE_X=",
        "SLUICE_PULL_SECRETS": "a,b",
    }
    made = load(DriverClusterSettings, environ=environ).render_settings()
    assert made.namespace == SETTINGS.namespace
    assert made.images == SETTINGS.images
    assert made.pull_secrets == ("a", "b")
    assert made.env == (
        EnvVar(name="SLUICE_NATS_URL", value="tls://nats:4222?a=b"),
        EnvVar(name="SLUICE_X", value=""),
    )
