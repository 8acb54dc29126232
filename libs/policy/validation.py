"""Checks across the fields of one policy object, beyond those of single fields."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from libs.contracts.node import DRIVER_LABEL, STATE_LABEL
from libs.policy.affinity import parse_affinity
from libs.policy.findings import Finding, Severity, quote_value
from libs.policy.kinds.agents import (
    NRI_VARIABLES,
    PLUGIN_VARIABLES,
    WITH_REBOOT,
    DevicePlugin,
    MigManager,
    Toolkit,
)
from libs.policy.kinds.cluster_policy import ClusterPolicy, ClusterPolicySpec
from libs.policy.kinds.common import Image
from libs.policy.kinds.driver import DriverBase, Gdrcopy, Gds, KernelModuleType
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
from libs.policy.kinds.nvidia_driver import DriverType, NvidiaDriver
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.selectors import is_valid_selector
from libs.policy.shapes import FreeForm, scaled_value

OWNER_LABEL: Final = "nvidia.com/gpu-operator.driver.owner"
"""Names the NVIDIADriver that owns a node; written by Sluice only."""

_RESERVED_LABELS: Final = frozenset((OWNER_LABEL, DRIVER_LABEL, STATE_LABEL))
"""Labels that follow from the choice of a node's driver."""

PRESENT_LABEL: Final = "nvidia.com/gpu.present"
_OPEN_ONLY_FROM: Final = (2, 17, 5)
"""From this version, GPUDirect Storage works with open kernel modules only."""

_CUDA: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){0,2}", re.ASCII)

_SANDBOX_SECTIONS: Final = frozenset(
    (
        "ccManager",
        "kataManager",
        "kataSandboxDevicePlugin",
        "sandboxDevicePlugin",
        "vfioManager",
        "vgpuDeviceManager",
        "vgpuManager",
    )
)
"""Sections that have an effect only if sandboxWorkloads is enabled."""


def validate(policy: Any, decoded: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings of decoding, and those about fields that contradict each other."""
    match policy:
        case ClusterPolicy():
            if not policy.spec.sandbox_workloads.enabled:
                decoded = map(_without_sandbox_warning, decoded)
            return (*decoded, *_cluster_policy(policy))
        case NvidiaDriver():
            return (*decoded, *_nvidia_driver(policy))
        case GpuClusterPolicy():
            return (*decoded, *_gpu_cluster_policy(policy))
        case _:
            return tuple(decoded)


def _without_sandbox_warning(found: Finding) -> Finding:
    """Turn a warning into a note where the switch has no effect in the GPU Operator either."""
    section = found.field.split(".")[1:2]
    if found.severity is Severity.WARNING and _SANDBOX_SECTIONS.intersection(section):
        return msgspec.structs.replace(found, severity=Severity.NOTE)
    return found


def _cluster_policy(policy: ClusterPolicy) -> Iterator[Finding]:
    spec = policy.spec
    if spec.driver.enabled and not spec.driver.use_nvidia_driver_crd:
        yield from _driver(spec.driver, spec.gds, spec.gdrcopy, path="spec.driver", parent="spec")
        yield from _upgrades(spec.driver.upgrade_policy, "spec.driver.upgradePolicy")
    yield from _directories(spec)
    yield from _toolkit_variables(spec.toolkit)
    yield from _mig_variables(spec.mig_manager)
    yield from _device_plugin(spec.device_plugin)
    max_unavailable = spec.daemonsets.rolling_update.max_unavailable
    if max_unavailable and not scaled_value(max_unavailable, 100):
        yield Finding(
            field="spec.daemonsets.rollingUpdate.maxUnavailable",
            value=quote_value(max_unavailable),
            problem="would never replace a pod; 1 is used instead",
            remedy="set it to 1 or more, or updateStrategy to OnDelete",
            severity=Severity.WARNING,
        )
    if spec.cdi.nri_plugin_enabled and not spec.cdi.enabled:
        yield Finding(
            field="spec.cdi.nriPluginEnabled",
            value="true",
            problem="requires spec.cdi.enabled to be true",
            quoted="the NRI Plugin cannot be enabled when CDI is disabled",
            remedy="set spec.cdi.enabled to true, or this to false",
        )
    if spec.cdi.nri_plugin_enabled and not spec.toolkit.enabled:
        yield Finding(
            field="spec.cdi.nriPluginEnabled",
            value="true",
            problem="requires spec.toolkit.enabled to be true",
            quoted="the NRI Plugin cannot be enabled when the Container Toolkit is disabled",
            remedy="set spec.toolkit.enabled to true, or this to false",
        )


def _nvidia_driver(policy: NvidiaDriver) -> Iterator[Finding]:
    spec = policy.spec
    if spec.driver_type is not DriverType.GPU:
        yield Finding(
            field="spec.driverType",
            value=quote_value(spec.driver_type.value),
            problem="asks for vGPU, which Sluice does not support",
            remedy="create another object with driverType gpu: the type cannot be changed",
        )
    if spec.default and spec.node_selector:
        yield Finding(
            field="spec.nodeSelector",
            value=quote_value(spec.node_selector),
            problem="is set on a default driver; the default cannot use nodeSelector",
            remedy="remove it, or set spec.default to false",
        )
    for key in sorted(_RESERVED_LABELS & spec.node_selector.keys()):
        yield Finding(
            field=f"spec.nodeSelector[{key}]",
            value=quote_value(spec.node_selector[key]),
            problem="is a reserved label: it follows from the choice of a node's driver",
            remedy="select by another label",
        )
    yield from _node_affinity(spec.node_affinity)
    yield from _driver(spec, spec.gds, spec.gdrcopy, path="spec", parent="spec")
    yield from _upgrades(spec.upgrade_policy, "spec.upgradePolicy")


def _node_affinity(given: FreeForm) -> Iterator[Finding]:
    field = "spec.nodeAffinity"
    affinity = parse_affinity(given)
    if isinstance(affinity, str):
        yield Finding(
            field=field,
            value=quote_value(given),
            problem=f"cannot be used: {affinity}",
            remedy="write it as in a pod's spec.affinity.nodeAffinity, or select by nodeSelector",
        )
        return
    for key in sorted(_RESERVED_LABELS.intersection(affinity.label_keys())):
        yield Finding(
            field=field,
            value=quote_value(key),
            problem="requires a reserved label: it follows from the choice of a node's driver",
            remedy="select by another label",
        )
    if affinity.has_preferences:
        yield Finding(
            field=f"{field}.preferredDuringSchedulingIgnoredDuringExecution",
            value=quote_value(()),
            problem="is accepted and has no effect here, because a driver runs on every node that"
            " it may run on",
            remedy="remove it, or keep it knowing that it has no effect",
            severity=Severity.NOTE,
        )


def _gpu_cluster_policy(policy: GpuClusterPolicy) -> Iterator[Finding]:
    driver = policy.spec.driver
    if driver.enabled and not driver.version:
        yield Finding(
            field="spec.driver.version",
            problem="is not set: there is no version to install",
            remedy="set it, or set spec.driver.enabled to false",
        )
    cuda = policy.spec.cuda
    if cuda.enabled and cuda.version and not _CUDA.fullmatch(cuda.version):
        yield Finding(
            field="spec.cuda.version",
            value=quote_value(cuda.version),
            problem="is not a CUDA version",
            remedy="write one like 13.0, or set spec.cuda.enabled to false",
        )


def _directories(spec: ClusterPolicySpec) -> Iterator[Finding]:
    """Check paths on the host; an empty one means the default."""
    directories = {
        "spec.hostPaths.rootFS": spec.host_paths.root_fs,
        "spec.hostPaths.driverInstallDir": spec.host_paths.driver_install_dir,
        "spec.hostPaths.kubeletRootDir": spec.host_paths.kubelet_root_dir,
        "spec.toolkit.installDir": spec.toolkit.install_dir,
    }
    for field, directory in directories.items():
        if directory and (not directory.startswith("/") or ".." in directory.split("/")):
            yield Finding(
                field=field,
                value=quote_value(directory),
                problem="is not an absolute path without ..",
                remedy="write an absolute path without ..",
            )


def _toolkit_variables(section: Toolkit) -> Iterator[Finding]:
    for each in section.env:
        if each.name not in NRI_VARIABLES:
            yield Finding(
                field="spec.toolkit.env",
                value=quote_value(each.name),
                problem="is accepted and has no effect here, because the driver agent has its own"
                f" settings; only {' and '.join(NRI_VARIABLES)} are read",
                remedy="remove it, or keep it knowing that it has no effect",
                severity=Severity.NOTE,
            )


def _mig_variables(section: MigManager) -> Iterator[Finding]:
    for each in section.env:
        if each.name != WITH_REBOOT:
            yield Finding(
                field="spec.migManager.env",
                value=quote_value(each.name),
                problem="is accepted and has no effect here, because the driver agent has its own"
                f" settings; only {WITH_REBOOT} is read",
                remedy="remove it, or keep it knowing that it has no effect",
                severity=Severity.NOTE,
            )


def _device_plugin(section: DevicePlugin) -> Iterator[Finding]:
    if section.enabled and section.config.name and section.config.default:
        yield Finding(
            field="spec.devicePlugin.config.default",
            value=quote_value(section.config.default),
            problem="is the configuration of all nodes, because this version does not read their"
            " label nvidia.com/device-plugin.config",
            remedy="do without the label",
            severity=Severity.WARNING,
        )
    for each in section.env:
        if each.name not in PLUGIN_VARIABLES:
            yield Finding(
                field="spec.devicePlugin.env",
                value=quote_value(each.name),
                problem="is accepted and has no effect here, because the device plugin reads"
                f" {', '.join(PLUGIN_VARIABLES)} alone",
                remedy="remove it, or keep it knowing that it has no effect",
                severity=Severity.NOTE,
            )


def _upgrades(policy: UpgradePolicy, path: str) -> Iterator[Finding]:
    """Check pod selectors: their errors would otherwise show only after a node is cordoned."""
    selectors = {
        f"{path}.waitForCompletion.podSelector": policy.wait_for_completion.pod_selector,
        f"{path}.drain.podSelector": policy.drain.pod_selector,
    }
    for field, selector in selectors.items():
        if not is_valid_selector(selector):
            yield Finding(
                field=field,
                value=quote_value(selector),
                problem="is not a valid label selector",
                remedy='write one like "app=train" or "app in (train, tune), tier!=test"',
            )


def _driver(
    driver: DriverBase, gds: Gds, gdrcopy: Gdrcopy, *, path: str, parent: str
) -> Iterator[Finding]:
    yield from _image(driver, path)
    yield from _probes(driver, path)
    for name, part in (("gds", gds), ("gdrcopy", gdrcopy)):
        if not part.enabled:
            continue
        yield from _image(part, f"{parent}.{name}")
        if driver.use_precompiled:
            yield Finding(
                field=f"{parent}.{name}.enabled",
                value="true",
                problem="cannot be combined with precompiled drivers",
                remedy=f"set it to false, or {path}.usePrecompiled",
            )
    needs_open = gds.enabled and _needs_open_modules(gds.version)
    if needs_open and driver.kernel_module_type is not KernelModuleType.OPEN:
        yield Finding(
            field=f"{parent}.gds.version",
            value=quote_value(gds.version),
            problem="of GPUDirect Storage works only with open kernel modules",
            remedy=f"set {path}.kernelModuleType to open, or use a version older than v2.17.5",
        )


def _probes(driver: DriverBase, path: str) -> Iterator[Finding]:
    """Check for probes that the API server would refuse in a DaemonSet."""
    probes = {"startupProbe": driver.startup_probe, "livenessProbe": driver.liveness_probe}
    for name, probe in probes.items():
        if probe and probe.success_threshold not in (None, 1):
            yield Finding(
                field=f"{path}.{name}.successThreshold",
                value=quote_value(probe.success_threshold),
                problem="is not 1: Kubernetes takes nothing else for this probe",
                remedy="set it to 1, or leave it out",
            )


def _image(image: Image, path: str) -> Iterator[Finding]:
    """Check that an image has all three parts, or a full path in `image`, or nothing."""
    parts = {"repository": image.repository, "image": image.image, "version": image.version}
    missing = [name for name, value in parts.items() if not value]
    if missing and (image.repository or image.version):
        yield Finding(
            field=f"{path}.{missing[0]}",
            problem=(
                "is missing: invalid image specification: repository, image and version must all"
                f' be set (repository "{image.repository}", image "{image.image}",'
                f' version "{image.version}")'
            ),
            remedy=f"set {' and '.join(f'{path}.{name}' for name in missing)}",
        )


def _needs_open_modules(version: str) -> bool:
    if version.startswith("sha256:"):
        return True
    found = re.match(r"v?([0-9]{1,9})\.([0-9]{1,9})(?:\.([0-9]{1,9}))?", version, re.ASCII)
    return found is not None and tuple(int(part or 0) for part in found.groups()) >= _OPEN_ONLY_FROM
