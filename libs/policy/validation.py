"""Checks across the fields of one policy object, beyond those of single fields."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from libs.contracts.node import DRIVER_LABEL, STATE_LABEL
from libs.policy.affinity import parse_affinity
from libs.policy.driver_checks import check_driver
from libs.policy.findings import Finding, Severity, quote_value, without_effect
from libs.policy.kinds.agents import (
    LEGACY_CLASS,
    WITH_WORKLOAD,
)
from libs.policy.kinds.cluster_policy import ClusterPolicy, ClusterPolicySpec
from libs.policy.kinds.common import EnvVar
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
from libs.policy.kinds.mig import WITH_REBOOT
from libs.policy.kinds.nvidia_driver import DriverType, NvidiaDriver
from libs.policy.kinds.unsupported import ONLY_FOR_VMS
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.manager_env import check_manager_env
from libs.policy.plugin_env import check_plugin_env
from libs.policy.selectors import is_valid_selector
from libs.policy.shapes import FreeForm, scaled_value
from libs.policy.toolkit_env import check_toolkit_env

OWNER_LABEL: Final = "nvidia.com/gpu-operator.driver.owner"
"""Names the NVIDIADriver that owns a node; written by Sluice only."""

_RESERVED_LABELS: Final = frozenset((OWNER_LABEL, DRIVER_LABEL, STATE_LABEL))
"""Labels that follow from the choice of a node's driver."""

PRESENT_LABEL: Final = "nvidia.com/gpu.present"

_CUDA: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){0,2}", re.ASCII)


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
    if found.severity is Severity.WARNING and set(ONLY_FOR_VMS).intersection(section):
        return msgspec.structs.replace(found, severity=Severity.NOTE)
    return found


def _cluster_policy(policy: ClusterPolicy) -> Iterator[Finding]:
    spec = policy.spec
    if spec.driver.enabled and not spec.driver.use_nvidia_driver_crd:
        yield from check_driver(
            spec.driver, spec.gds, spec.gdrcopy, path="spec.driver", parent="spec"
        )
        yield from _upgrades(spec.driver.upgrade_policy, "spec.driver.upgradePolicy")
        yield from check_manager_env(
            spec.driver.manager.env, spec.driver.upgrade_policy, path="spec.driver.manager.env"
        )
    yield from _directories(spec)
    yield from _runtime_class(spec.operator.runtime_class)
    yield from check_toolkit_env(spec.toolkit.env, nri=spec.cdi.nri_plugin_enabled)
    yield from _variables(
        "spec.migManager.env", spec.mig_manager.env, only=WITH_REBOOT, agent="the driver agent"
    )
    yield from _variables(
        "spec.validator.plugin.env",
        spec.validator.plugin.env,
        only=WITH_WORKLOAD,
        agent="the validator's agent",
    )
    yield from check_plugin_env(spec.device_plugin.env)
    yield from _claims(policy)
    if spec.dra.enabled and not (spec.cdi.enabled and spec.toolkit.enabled):
        yield Finding(
            field="spec.dra.enabled",
            value="true",
            problem="requires spec.toolkit.enabled and spec.cdi.enabled to be true, because claims"
            " are given by CDI",
            remedy="set both to true, or this to false",
        )
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
    yield from check_driver(spec, spec.gds, spec.gdrcopy, path="spec", parent="spec")
    yield from _upgrades(spec.upgrade_policy, "spec.upgradePolicy")
    yield from check_manager_env(spec.manager.env, spec.upgrade_policy, path="spec.manager.env")


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
        yield without_effect(
            f"{field}.preferredDuringSchedulingIgnoredDuringExecution",
            (),
            "a driver runs on every node that it may run on",
        )


def _gpu_cluster_policy(policy: GpuClusterPolicy) -> Iterator[Finding]:
    yield from _claims(policy)
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


def _runtime_class(name: str) -> Iterator[Finding]:
    if name == LEGACY_CLASS:
        yield Finding(
            field="spec.operator.runtimeClass",
            value=quote_value(name),
            problem="names NVIDIA's legacy runtime, which Sluice does not have",
            remedy="write nvidia, which is the default runtime by another name",
        )


def _variables(field: str, env: Iterable[EnvVar], *, only: str, agent: str) -> Iterator[Finding]:
    """Note the variables of an operand of which our agent reads only one."""
    for each in env:
        if each.name != only:
            because = f"{agent} has its own settings; only {only} is read"
            yield without_effect(field, each.name, because)


def _claims(policy: ClusterPolicy | GpuClusterPolicy) -> Iterator[Finding]:
    """Refuse two that would give the same GPUs to pods."""
    if policy.spec.dra.enabled and policy.spec.device_plugin.enabled:
        yield Finding(
            field="spec.dra.enabled",
            value="true",
            problem="cannot be combined with spec.devicePlugin.enabled: the device plugin and"
            " claims would give the same GPU to two pods",
            remedy="set spec.devicePlugin.enabled to false, or this to false",
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
