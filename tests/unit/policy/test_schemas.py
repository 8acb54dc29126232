"""The CRD schemas: accepted and refused values, defaults, and printer columns."""

import copy
from typing import Any

import msgspec
import pytest

from libs.contracts.rollout import Counts, InFlight, RolloutPhase, RolloutStatus, TargetRecord
from libs.policy.crds import CEL_RULES, crd_schema
from libs.policy.kinds import KINDS
from libs.testing.apiserver.kinds.schema import rule_texts
from tests.unit.policy.crd_schemas import admit, corpus, rejection_causes, served_schema
from tests.unit.policy.fields import get, minimal_object, put

Object = dict[str, Any]


@pytest.mark.parametrize(("name", "obj"), corpus(), ids=lambda value: str(value)[:60])
def test_gpu_operator_manifests_are_accepted_unchanged(name: str, obj: Object) -> None:
    assert served_schema(obj["kind"]).prune(obj) == obj, name
    stored = admit(copy.deepcopy(obj))
    _contains(stored, obj)
    assert admit(stored) == stored


def _contains(stored: Any, given: Any) -> None:
    if isinstance(given, dict):
        for name, value in given.items():
            _contains(stored[name], value)
    else:
        assert stored == given


@pytest.mark.parametrize(
    ("kind", "given", "added"),
    [
        ("ClusterPolicy", "operator", {"runtimeClass": "nvidia"}),
        (
            "ClusterPolicy",
            "driver.upgradePolicy.drain",
            {"enable": False, "force": False, "timeoutSeconds": 300, "deleteEmptyDir": False},
        ),
        ("ClusterPolicy", "cdi", {"enabled": True, "default": False, "nriPluginEnabled": False}),
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


def test_the_server_sets_these_defaults_of_a_driver_and_a_strategy() -> None:
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
        ("ClusterPolicy", "driver.manager.image", "_"),
        ("ClusterPolicy", "vgpuManager.driverManager.image", "_"),
        ("ClusterPolicy", "dcgmExporter.serviceMonitor.interval", "15"),
        ("ClusterPolicy", "operator.metrics.serviceMonitor.scrapeTimeout", "5 s"),
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
        ("RolloutStrategy", "startupTaint", "example.com/"),
        ("RolloutStrategy", "startupTaint", "Example/key"),
        ("RolloutStrategy", "startupTaint", "key=value:NoSchedule"),
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


@pytest.mark.parametrize("kind", KINDS)
def test_printer_columns_show_fields_of_the_schema(kind: str) -> None:
    for column in KINDS[kind].columns:
        if not column.path.startswith(".metadata."):
            assert _named(crd_schema(KINDS[kind]), column.path), column.path


def _named(schema_of: Object, path: str) -> bool:
    below: Any = schema_of
    for name in path.removeprefix(".").split("."):
        below = (below or {}).get("properties", {}).get(name)
    return below is not None


ROLLOUT_STATUS = RolloutStatus(
    target="4d5",
    phase=RolloutPhase.HALTED,
    because="2 of 40 nodes failed",
    epoch=7,
    base=40,
    last_good="3c4",
    frozen_since=1700000000.5,
    frozen_seconds=12.5,
    in_flight={"uid-1": InFlight(node="a", token=3, target="4d5", since=1700000000.25)},
    targets={
        "4d5": TargetRecord(
            threshold=2,
            accepted=1,
            failed=("uid-2", "uid-3"),
            validated=("uid-4",),
            proven=True,
            proven_at=1700000000.75,
            complete=True,
            halted_because="too many",
        ),
        "3c4": TargetRecord(threshold=1),
    },
    counts=Counts(**{field: number for number, field in enumerate(Counts.__struct_fields__, 1)}),
    observed_generation=2,
)


@pytest.mark.parametrize("status", [ROLLOUT_STATUS, RolloutStatus()])
def test_the_schema_of_rollouts_keeps_the_whole_status(status: RolloutStatus) -> None:
    written: Any = msgspec.json.decode(msgspec.json.encode(status))
    obj = minimal_object("Rollout") | {"status": written}
    assert served_schema("Rollout").prune(obj)["status"] == written
    assert msgspec.convert(admit(obj)["status"], RolloutStatus) == status
