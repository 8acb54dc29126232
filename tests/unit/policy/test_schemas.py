"""The CRD schemas: accepted and refused values, defaults, and printer columns."""

import copy
from typing import Any

import pytest

from libs.policy.crds import CEL_RULES, crd_manifests, crd_schema
from libs.policy.kinds import KINDS
from libs.testing.apiserver.schemas.rules import rule_texts
from tests.unit.policy.crd_schemas import admit, corpus, rejection_causes, served_schema
from tests.unit.policy.fields import get, minimal_object, put

Object = dict[str, Any]


@pytest.mark.parametrize(("name", "obj"), corpus(), ids=lambda value: str(value)[:60])
def test_gpu_operator_manifests_are_accepted_unchanged(name: str, obj: Object) -> None:
    assert served_schema(obj["kind"]).prune(obj) == obj, name
    kept = admit(copy.deepcopy(obj))
    _contains(kept, obj)
    assert admit(kept) == kept


def _contains(kept: Any, given: Any) -> None:
    if isinstance(given, dict):
        for name, value in given.items():
            _contains(kept[name], value)
    else:
        assert kept == given


@pytest.mark.parametrize(
    ("kind", "given", "added"),
    [
        ("ClusterPolicy", "operator", {"runtimeClass": "nvidia"}),
        ("ClusterPolicy", "daemonsets", {"updateStrategy": "RollingUpdate"}),
        ("ClusterPolicy", "driver", {"kernelModuleType": "auto"}),
        (
            "ClusterPolicy",
            "driver.upgradePolicy",
            {"autoUpgrade": False, "maxParallelUpgrades": 1, "maxUnavailable": "25%"},
        ),
        (
            "ClusterPolicy",
            "driver.upgradePolicy.podDeletion",
            {"force": False, "timeoutSeconds": 300, "deleteEmptyDir": False},
        ),
        ("ClusterPolicy", "driver.upgradePolicy.waitForCompletion", {"timeoutSeconds": 0}),
        (
            "ClusterPolicy",
            "driver.upgradePolicy.drain",
            {"enable": False, "force": False, "timeoutSeconds": 300, "deleteEmptyDir": False},
        ),
        ("ClusterPolicy", "toolkit", {"installDir": "/usr/local/nvidia"}),
        ("ClusterPolicy", "devicePlugin.mps", {"root": "/run/nvidia/mps"}),
        ("ClusterPolicy", "migManager.config", {"default": "all-disabled"}),
        (
            "ClusterPolicy",
            "sandboxWorkloads",
            {"defaultWorkload": "container", "mode": "kubevirt"},
        ),
        ("ClusterPolicy", "vgpuDeviceManager.config", {"default": "default"}),
        ("ClusterPolicy", "cdi", {"enabled": True, "default": False, "nriPluginEnabled": False}),
        (
            "ClusterPolicy",
            "kataManager.config",
            {"artifactsDir": "/opt/nvidia-gpu-operator/artifacts/runtimeclasses"},
        ),
        ("ClusterPolicy", "hostPaths", {"kubeletRootDir": "/var/lib/kubelet"}),
        ("ClusterPolicy", "gfd", {}),
        (
            "NVIDIADriver",
            "upgradePolicy",
            {"autoUpgrade": True, "maxParallelUpgrades": 1, "maxUnavailable": "25%"},
        ),
    ],
)
def test_defaults_are_stored_in_present_sections(kind: str, given: str, added: Object) -> None:
    obj = minimal_object(kind)
    put(obj["spec"], given, {})
    assert get(admit(obj)["spec"], given) == added


def test_defaults_of_a_driver_and_a_strategy() -> None:
    driver = {"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "spec": {}}
    assert admit(driver)["spec"] == {
        "default": False,
        "driverType": "gpu",
        "kernelModuleType": "auto",
        "image": "nvcr.io/nvidia/driver",
    }
    assert admit(minimal_object("RolloutStrategy"))["spec"] == {
        "pool": "clusterpolicy-a",
        "failureThreshold": "5%",
        "retries": 1,
        "onJobTimeout": "Evict",
        "onEvictionTimeout": "Fail",
        "cordonedNodes": "Upgrade",
    }
    assert admit(minimal_object("Rollout"))["spec"] == {"brake": "None"}


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("ClusterPolicy", "driver.enabled", "true"),
        ("ClusterPolicy", "driver.kernelModuleType", "free"),
        ("ClusterPolicy", "driver.startupProbe.periodSeconds", 0),
        ("ClusterPolicy", "driver.upgradePolicy.maxParallelUpgrades", -1),
        ("ClusterPolicy", "driver.upgradePolicy.drain.timeoutSeconds", -1),
        ("ClusterPolicy", "driver.image", ""),
        ("ClusterPolicy", "driver.resources.limits.cpu", "many"),
        ("ClusterPolicy", "daemonsets.updateStrategy", "Never"),
        ("ClusterPolicy", "daemonsets.rollingUpdate.maxUnavailable", 1),
        ("ClusterPolicy", "mig.strategy", "all"),
        ("ClusterPolicy", "migManager.config.default", "all-enabled"),
        ("ClusterPolicy", "sandboxWorkloads.mode", "qemu"),
        ("ClusterPolicy", "ccManager.defaultMode", "maybe"),
        ("NVIDIADriver", "driverType", "tpu"),
        ("RolloutStrategy", "failureThreshold", "101%"),
        ("RolloutStrategy", "failureThreshold", -1),
        ("RolloutStrategy", "retries", -1),
        ("RolloutStrategy", "onJobTimeout", "Panic"),
        ("RolloutStrategy", "pool", "ClusterPolicy/a"),
        ("Rollout", "brake", "Stop"),
        ("Rollout", "release", {"target": "x"}),
    ],
)
def test_invalid_values_are_refused(kind: str, path: str, value: Any) -> None:
    obj = minimal_object(kind)
    put(obj["spec"], path, value)
    fields = [field for field, _ in rejection_causes(obj)]
    assert any(field.startswith(f"spec.{path}") for field in fields), fields


# Rules.


def test_every_cel_rule_has_a_predicate() -> None:
    texts = [text for kind in KINDS.values() for text in rule_texts(crd_schema(kind))]
    assert set(texts) == set(CEL_RULES)


# Beside the schema.


def test_names_scope_and_subresources() -> None:
    told = {
        name: (
            crd["spec"]["scope"],
            crd["spec"]["names"]["kind"],
            crd["spec"]["names"].get("shortNames", []),
            [version["name"] for version in crd["spec"]["versions"]],
            [version["subresources"] for version in crd["spec"]["versions"]],
        )
        for name, crd in crd_manifests().items()
    }
    status = [{"status": {}}]
    assert told == {
        "clusterpolicies.nvidia.com": ("Cluster", "ClusterPolicy", [], ["v1"], status),
        "nvidiadrivers.nvidia.com": (
            "Cluster",
            "NVIDIADriver",
            ["nvd", "nvdriver", "nvdrivers"],
            ["v1alpha1"],
            status,
        ),
        "gpuclusterpolicies.gpu.nvidia.com": ("Cluster", "GPUClusterPolicy", [], ["v1"], status),
        "rolloutstrategies.sluice.dev": ("Cluster", "RolloutStrategy", [], ["v1alpha1"], status),
        "rollouts.sluice.dev": ("Cluster", "Rollout", [], ["v1alpha1"], status),
    }


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("ClusterPolicy", ["Status", "Age"]),
        ("NVIDIADriver", ["Status", "Default", "Age"]),
        ("GPUClusterPolicy", ["Status", "Driver", "Age"]),
        ("RolloutStrategy", ["Pool", "Threshold", "Retries", "Age"]),
        ("Rollout", ["Target", "Phase", "Done", "Total", "Failed", "Brake", "Age"]),
    ],
)
def test_printer_columns(kind: str, columns: list[str]) -> None:
    known = KINDS[kind].columns
    assert [column.name for column in known if not column.wide] == columns
    root = crd_schema(KINDS[kind])
    for column in known:
        if not column.path.startswith(".metadata."):
            assert _named(root, column.path), column.path


def _named(schema_of: Object, path: str) -> bool:
    below: Any = schema_of
    for name in path.removeprefix(".").split("."):
        below = (below or {}).get("properties", {}).get(name)
    return below is not None


def test_maps_and_lists_of_a_rollout_are_atomic() -> None:
    status = crd_schema(KINDS["Rollout"])["properties"]["status"]["properties"]
    for name in ("inFlight", "targets", "counts"):
        assert status[name]["x-kubernetes-map-type"] == "atomic"
    record = status["targets"]["additionalProperties"]["properties"]
    for name in ("failed", "validated"):
        assert record[name]["x-kubernetes-list-type"] == "atomic"
