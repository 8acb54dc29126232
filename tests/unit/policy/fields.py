"""Every field of the kinds, as the GPU Operator's reference and our own documents list them.

Written by hand, not from the model: a value for each field, and the expected result of setting it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import msgspec

from libs.policy.kinds import KINDS
from libs.policy.manifests import Policy
from libs.policy.shapes import to_json

Object = dict[str, Any]


class ExpectedFinding(Enum):
    """The expected result of setting a field."""

    MODEL = auto()
    """The model has the value, without a finding."""
    NOTE = auto()
    """A note: the field has no effect."""
    WARNING = auto()
    """A warning: the requested feature is not supported."""
    ERROR = auto()
    """An error refuses the value."""


@dataclass(frozen=True)
class FieldCase:
    """One field and a value for it."""

    kind: str
    path: str
    value: Any
    expected: ExpectedFinding

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"

    def manifest(self) -> Object:
        """Return a valid object with this field and the fields that it requires."""
        obj = minimal_object(self.kind)
        for path, value in (*REQUIRED_BESIDE.get(str(self), {}).items(), (self.path, self.value)):
            put(obj["spec"], path, value)
        return obj


API = {
    "ClusterPolicy": "nvidia.com/v1",
    "NVIDIADriver": "nvidia.com/v1alpha1",
    "GPUClusterPolicy": "gpu.nvidia.com/v1",
    "RolloutStrategy": "sluice.dev/v1alpha1",
    "Rollout": "sluice.dev/v1alpha1",
}
SECTIONS = (
    "operator",
    *("daemonsets", "driver", "toolkit", "devicePlugin", "dcgm"),
    *("dcgmExporter", "nodeStatusExporter", "gfd"),
)
MINIMAL_SPECS: dict[str, Object] = {
    "ClusterPolicy": {section: {} for section in SECTIONS},
    "NVIDIADriver": {"default": False, "driverType": "gpu", "image": "r.example/driver:1"},
    "GPUClusterPolicy": {"driver": {"version": "580.95.05"}},
    "RolloutStrategy": {"pool": "clusterpolicy-a"},
    "Rollout": {},
}
ENV = [{"name": "A", "value": "1"}]
IMAGE: Object = {
    "repository": "r.example/nvidia",
    "image": "an-image",
    "version": "1.2.3",
    "imagePullPolicy": "Always",
    "imagePullSecrets": ["pull"],
}
REST: Object = {
    "resources.limits": {"cpu": 2, "memory": "1Gi"},
    "resources.requests": {"cpu": "100m"},
    "args": ["--an-argument"],
    "env": ENV,
    "hostNetwork": True,
}
SERVICE_MONITOR: Object = {
    "interval": "15s",
    "scrapeTimeout": "1m30s",
    "honorLabels": True,
    "additionalLabels": {"a": "b"},
    "relabelings": [{"sourceLabels": ["x"], "targetLabel": "y"}],
}
PROBE = {
    "initialDelaySeconds": 5,
    "timeoutSeconds": 6,
    "periodSeconds": 7,
    "successThreshold": 1,
    "failureThreshold": 9,
}
POD_DELETION: Object = {"force": True, "timeoutSeconds": 30, "deleteEmptyDir": True}
WITH_IMAGE = ("repository", "image", "version")
TOLERATIONS = [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}]


def to_manifest(policy: Policy) -> dict[str, Any]:
    """Return the policy as a manifest; fields at their defaults only if required."""
    kind = next(kind for kind in KINDS.values() if isinstance(policy, kind.object_type))
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": msgspec.to_builtins(policy.metadata),
        "spec": to_json(policy.spec, kind.spec_shape),
    }


def minimal_object(kind: str) -> Object:
    """Return the smallest valid object of a kind."""
    spec = {
        name: dict(value) if isinstance(value, dict) else value
        for name, value in MINIMAL_SPECS[kind].items()
    }
    return {"apiVersion": API[kind], "kind": kind, "metadata": {"name": "a"}, "spec": spec}


def put(obj: Object, path: str, value: Any) -> None:
    """Set one field by its path."""
    *parents, field = path.split(".")
    for name in parents:
        obj = obj.setdefault(name, {})
    obj[field] = value


def get(obj: Any, path: str) -> Any:
    """Return the value at a path, or None."""
    for name in path.split("."):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def with_prefix(path: str, fields: Object) -> Object:
    """Return fields below a path."""
    return {f"{path}.{name}": value for name, value in fields.items()}


def driver_fields(prefix: str) -> Object:
    """Return the driver fields that ClusterPolicy and NVIDIADriver share."""
    fields = {**IMAGE, **REST, "usePrecompiled": True, "kernelModuleType": "open"}
    fields |= {"rdma.enabled": True, "rdma.useHostMofed": True}
    fields |= {"secretEnv": "s", "certConfig.name": "c", "kernelModuleConfig.name": "k"}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        fields |= with_prefix(probe, PROBE)
    return with_prefix(prefix, fields) if prefix else fields


DRAIN_ENV = [{"name": "ENABLE_AUTO_DRAIN", "value": "true"}]


def upgrade_fields(prefix: str, *, auto_upgrade: bool) -> Object:
    """Return the fields of an upgrade policy."""
    return with_prefix(
        prefix,
        {
            "autoUpgrade": auto_upgrade,
            "maxParallelUpgrades": 5,
            "maxUnavailable": "10%",
            **with_prefix("podDeletion", POD_DELETION),
            "waitForCompletion.podSelector": "job=x",
            "waitForCompletion.timeoutSeconds": 60,
            **with_prefix("drain", {"enable": True, "podSelector": "a=b", **POD_DELETION}),
        },
    )


def parts() -> Object:
    """Return the fields of gds and gdrcopy."""
    fields: Object = {}
    for part in ("gds", "gdrcopy"):
        fields |= with_prefix(part, {"enabled": True, **IMAGE, **REST})
    return fields


def _cluster_model() -> Object:
    fields = {
        "mig.strategy": "mixed",
        "operator.runtimeClass": "gpu",
        "hostPaths.kubeletRootDir": "/data/kubelet",
        "daemonsets.labels": {"a": "b"},
        "daemonsets.annotations": {"a": "b"},
        "daemonsets.tolerations": TOLERATIONS,
        "daemonsets.priorityClassName": "p",
        "daemonsets.updateStrategy": "OnDelete",
        "daemonsets.rollingUpdate.maxUnavailable": "20%",
        "daemonsets.podSecurityContext": {"runAsUser": 0},
        **driver_fields("driver"),
        "driver.manager.env": DRAIN_ENV,
        "driver.enabled": False,
        "driver.useNvidiaDriverCRD": True,
        "driver.repoConfig.configMapName": "r",
        **upgrade_fields("driver.upgradePolicy", auto_upgrade=True),
        **parts(),
        "dcgmExporter.annotations": {"a": "b"},
        "dcgmExporter.config.name": "c",
        "dcgmExporter.serviceMonitor.enabled": True,
        **with_prefix("dcgmExporter.serviceMonitor", SERVICE_MONITOR),
        "nodeStatusExporter.enabled": True,
        "nodeStatusExporter.serviceMonitor.enabled": True,
        **with_prefix("nodeStatusExporter.serviceMonitor", SERVICE_MONITOR),
        "dcgmExporter.service.type": "NodePort",
        "dcgmExporter.service.internalTrafficPolicy": "Local",
        "cdi.enabled": False,
        "sandboxWorkloads.defaultWorkload": "vm-vgpu",
        "hostPaths.rootFS": "/host",
        "hostPaths.driverInstallDir": "/run/driver",
        "migManager.config.name": "layouts",
        "migManager.env": [{"name": "WITH_REBOOT", "value": "true"}],
        "toolkit.env": [{"name": "RUNTIME_RESTART_MODE", "value": "signal"}],
        "devicePlugin.env": [{"name": "PASS_DEVICE_SPECS", "value": "true"}],
        "validator.plugin.env": [{"name": "WITH_WORKLOAD", "value": "true"}],
        "cdi.nriPluginEnabled": True,
        "dra.enabled": True,
        "devicePlugin.config.name": "c",
        "devicePlugin.config.default": "d",
    }
    for agent in ("toolkit", "devicePlugin", "dcgmExporter", "gfd", "migManager"):
        fields[f"{agent}.enabled"] = False
    for agent in AGENTS:
        fields |= with_prefix(agent, of_pod())
    return fields


def of_pod() -> Object:
    """Return the fields of an agent's section that have an effect on its pod."""
    without = (*WITH_IMAGE, "args", "env", "hostNetwork")
    return {name: value for name, value in (IMAGE | REST).items() if name not in without}


AGENTS = (
    *("toolkit", "devicePlugin", "dcgmExporter", "nodeStatusExporter"),
    *("gfd", "migManager", "validator"),
)
ABSENT = (
    "dcgm",
    "vfioManager",
    "sandboxDevicePlugin",
    "kataSandboxDevicePlugin",
    "vgpuManager",
    "vgpuDeviceManager",
    "kataManager",
    "ccManager",
)


def _cluster_notes() -> Object:
    fields = {
        "operator.defaultRuntime": "crio",
        **with_prefix("operator.initContainer", IMAGE),
        "operator.labels": {"a": "b"},
        "operator.annotations": {"a": "b"},
        **with_prefix("operator.metrics.serviceMonitor", SERVICE_MONITOR),
        **with_prefix("driver.manager", IMAGE),
        "toolkit.installDir": "/opt/nvidia",
        "migManager.config.default": "",
        "driver.useOpenKernelModules": True,
        "driver.licensingConfig.configMapName": "l",
        "driver.licensingConfig.secretName": "l",
        "driver.licensingConfig.nlsEnabled": True,
        "driver.virtualTopology.config": "t",
        "devicePlugin.mps.root": "/mps",
        "dcgm.hostPort": 5555,
        "dcgmExporter.hostPID": True,
        "dcgmExporter.podLabelAllowlistRegex": ["a.*"],
        "dcgmExporter.hpcJobMapping.directory": "/jobs",
        "migManager.gpuClientsConfig.name": "g",
        "sandboxWorkloads.mode": "kata",
        **with_prefix("vgpuManager.driverManager", {**IMAGE, "env": ENV}),
        "vgpuManager.kernelModuleConfig.name": "k",
        "vgpuDeviceManager.config.name": "c",
        "vgpuDeviceManager.config.default": "d",
        **with_prefix("vfioManager.driverManager", {**IMAGE, "env": ENV}),
        "cdi.default": True,
        "ccManager.defaultMode": "devtools",
        "kataManager.config.artifactsDir": "/kata",
        "kataManager.config.runtimeClasses": [{"name": "k", "artifacts": {"url": "u"}}],
    }
    for check in ("toolkit", "driver", "cuda", "vfioPCI", "vgpuManager", "vgpuDevices"):
        fields[f"validator.{check}.env"] = ENV
    for agent in AGENTS:
        fields |= with_prefix(agent, {name: IMAGE[name] for name in WITH_IMAGE})
        fields |= with_prefix(agent, {"args": ["-a"], "env": ENV, "hostNetwork": True})
    del fields["migManager.env"]
    del fields["devicePlugin.env"]
    del fields["toolkit.env"]
    for absent in ABSENT:
        fields |= with_prefix(absent, {**IMAGE, **REST})
    return fields


def _cluster_warnings() -> Object:
    names = [f"{absent}.enabled" for absent in ABSENT]
    names += [
        "operator.metrics.serviceMonitor.enabled",
        "operator.use_ocp_driver_toolkit",
        "dcgmExporter.enablePodLabels",
        "dcgmExporter.enablePodUID",
        "dcgmExporter.hpcJobMapping.enabled",
        "sandboxWorkloads.enabled",
        "psa.enabled",
        "psp.enabled",
    ]
    return {**dict.fromkeys(names, True), "driver.upgradePolicy.gpuPodDeletion": POD_DELETION}


def _driver_model() -> Object:
    return {
        "default": True,
        **driver_fields(""),
        "manager.env": DRAIN_ENV,
        **parts(),
        **upgrade_fields("upgradePolicy", auto_upgrade=False),
        "nodeSelector": {"rack": "7"},
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "Exists"}]}]
            }
        },
        "tolerations": TOLERATIONS,
        "labels": {"a": "b"},
        "annotations": {"a": "b"},
        "priorityClassName": "p",
        "podSecurityContext": {"runAsUser": 0},
        "repoConfig.name": "r",
    }


MODEL: dict[str, Object] = {
    "ClusterPolicy": _cluster_model(),
    "NVIDIADriver": _driver_model(),
    "GPUClusterPolicy": {
        "driver.enabled": False,
        "driver.version": "570.1",
        "cuda.enabled": False,
        "cuda.version": "13.0",
        "devicePlugin.enabled": False,
        "dra.enabled": True,
        "migManager.enabled": False,
    },
    "RolloutStrategy": {
        "pool": "nvidiadriver-b",
        "failureThreshold": 4,
        "retries": 0,
        "onJobTimeout": "Defer",
        "onEvictionTimeout": "ForceDelete",
        "cordonedNodes": "Skip",
        "startupTaint": "example.com/starting",
    },
    "Rollout": {"brake": "Freeze", "release.target": "4d5", "release.failures": 2},
}
NOTES: dict[str, Object] = {
    "ClusterPolicy": _cluster_notes(),
    "NVIDIADriver": {
        **with_prefix("manager", IMAGE),
        "useOpenKernelModules": True,
        "licensingConfig.name": "l",
        "licensingConfig.secretName": "l",
        "licensingConfig.nlsEnabled": False,
        "virtualTopologyConfig.name": "v",
    },
}
WARNINGS: dict[str, Object] = {
    "ClusterPolicy": _cluster_warnings(),
    "NVIDIADriver": {"upgradePolicy.gpuPodDeletion": POD_DELETION},
}
ERRORS: dict[str, Object] = {"NVIDIADriver": {"driverType": "vgpu"}}
_WHOLE = {"repository": "r.example", "image": "i", "version": "1"}
REQUIRED_BESIDE: dict[str, Object] = {
    "ClusterPolicy dra.enabled": {"devicePlugin.enabled": False},
    "GPUClusterPolicy dra.enabled": {"devicePlugin.enabled": False},
    "Rollout release.target": {"release.failures": 0},
    "Rollout release.failures": {"release.target": "x"},
    "NVIDIADriver manager.env": {"upgradePolicy.autoUpgrade": False},
    **{
        f"ClusterPolicy {at}.{name}": with_prefix(at, _WHOLE)
        for at in ("driver", "gds", "gdrcopy")
        for name in WITH_IMAGE
    },
    **{f"NVIDIADriver {name}": _WHOLE for name in WITH_IMAGE},
    **{
        f"ClusterPolicy {section}.enabled": {"sandboxWorkloads.enabled": True}
        for section in ABSENT
        if section != "dcgm"
    },
}
"""The fields that another field requires."""


def cases() -> Iterator[FieldCase]:
    """Return one case for every field."""
    for expected, tables in (
        (ExpectedFinding.MODEL, MODEL),
        (ExpectedFinding.NOTE, NOTES),
        (ExpectedFinding.WARNING, WARNINGS),
        (ExpectedFinding.ERROR, ERRORS),
    ):
        for kind, table in tables.items():
            for path, value in table.items():
                yield FieldCase(kind, path, value, expected)
