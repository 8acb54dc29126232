"""The pods of each agent: image, environment, and the parts of the host that it mounts."""

from collections.abc import Mapping
from typing import Final

import msgspec

from libs.policy.kinds.agents import MigStrategy, Toolkit
from libs.policy.kinds.cluster_policy import ClusterPolicy, HostPaths, Operator
from libs.policy.kinds.common import AgentSection as Section
from libs.policy.render.pods import BOTH_WAYS, FROM_HOST, JsonObject, host_volume, volume_mount
from libs.policy.render.rendered import RenderSettings
from libs.policy.wanted import Operands, host_root, install_dir, normalize_directory

HOST: Final = "/host"
"""Where agents mount the host's root."""

VALIDATIONS: Final = "/run/nvidia/validations"
METRICS_PORT: Final = 9400


class AgentPod(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a pod that are specific to one agent."""

    image: str
    args: tuple[str, ...] = ("agent",)
    sections: tuple[Section, ...]
    """Policy sections that apply to the agent; the first one takes precedence."""
    env: Mapping[str, str] = {}
    """Default variables; variables of the sections override them."""
    volumes: tuple[JsonObject, ...] = ()
    mounts: tuple[JsonObject, ...] = ()
    annotations: Mapping[str, str] = {}
    ports: tuple[JsonObject, ...] = ()
    host_pid: bool = False
    tolerates_all: bool = False
    """Whether the pod runs on nodes with any taint."""


def discovery(policy: ClusterPolicy, operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the discovery agent, which reports what a node is."""
    volumes, mounts = _host(policy, read_only=True)
    return AgentPod(
        image=settings.images.discovery,
        sections=(policy.spec.gfd,),
        env={
            "MIG_STRATEGY": _mig_strategy(policy),
            "SLUICE_GPU_LABELS": _flag(operands.gpu_labels),
        },
        volumes=volumes,
        mounts=mounts,
        tolerates_all=True,
    )


def runtime_class(policy: ClusterPolicy) -> str:
    """Return the name of the RuntimeClass, which is also its handler in the container runtime."""
    return policy.spec.operator.runtime_class or Operator().runtime_class


def driver_agent(policy: ClusterPolicy, operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the driver agent.

    It changes the node (drivers, toolkit, CDI, MIG), keeps the gate, and reports which pods use
    GPUs.
    """
    spec = policy.spec
    volumes, mounts = _host(policy, read_only=False)
    resources, pod_resources_mount = _pod_resources(policy)
    optional: JsonObject = {"name": settings.artefacts, "optional": True}
    extra_volumes: list[JsonObject] = [resources, {"name": "artefacts", "configMap": optional}]
    extra_mounts = [
        pod_resources_mount,
        volume_mount("artefacts", "/etc/sluice/artefacts", read_only=True),
    ]
    if spec.mig_manager.config.name:
        layouts: JsonObject = {"name": spec.mig_manager.config.name, "optional": True}
        extra_volumes.append({"name": "mig-layouts", "configMap": layouts})
        extra_mounts.append(volume_mount("mig-layouts", "/etc/sluice/mig", read_only=True))
    return AgentPod(
        image=settings.images.driver,
        sections=(spec.toolkit, spec.mig_manager),
        env={
            "CDI_ENABLED": _flag(spec.cdi.enabled),
            "SLUICE_DRIVER_DIR": install_dir(policy),
            "SLUICE_MIG_DEFAULT": spec.mig_manager.config.default,
            "SLUICE_MIG_MANAGER": _flag(operands.mig_manager),
            "SLUICE_RUNTIME_CLASS": runtime_class(policy),
            "SLUICE_TOOLKIT": _flag(operands.toolkit),
            "SLUICE_TOOLKIT_DIR": _toolkit_dir(policy),
        },
        volumes=(*volumes, *extra_volumes),
        mounts=(*mounts, *extra_mounts),
        host_pid=True,
    )


def device_plugin(policy: ClusterPolicy, _operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the device plugin."""
    spec = policy.spec
    volumes, mounts = _host(policy, read_only=True)
    folder = f"{_kubelet_dir(policy)}/device-plugins"
    env = {"DEVICE_LIST_STRATEGY": "envvar", "MIG_STRATEGY": _mig_strategy(policy)}
    if spec.cdi.enabled:
        env |= {
            "CDI_ANNOTATION_PREFIX": "cdi.k8s.io/",
            "DEVICE_LIST_STRATEGY": "cdi-annotations,cdi-cri",
            "NVIDIA_CDI_HOOK_PATH": f"{_toolkit_dir(policy)}/toolkit/nvidia-cdi-hook",
        }
    return AgentPod(
        image=settings.images.driver,
        args=("plugin",),
        sections=(spec.device_plugin,),
        env=env,
        volumes=(*volumes, host_volume("device-plugins", folder, "DirectoryOrCreate")),
        mounts=(*mounts, volume_mount("device-plugins", "/var/lib/kubelet/device-plugins")),
    )


def validator(policy: ClusterPolicy, operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the validator, which proves that a node's driver works."""
    checks = policy.spec.validator
    sections = {
        "cuda": checks.cuda,
        "driver": checks.driver,
        "plugin": checks.plugin,
        "toolkit": checks.toolkit,
    }
    env = {
        name: {variable.name: variable.value for variable in check.env}
        for name, check in sections.items()
    }
    checks_env = {name: values for name, values in env.items() if values}
    volumes, mounts = _host(policy, read_only=True)
    resources, pod_resources_mount = _pod_resources(policy)
    return AgentPod(
        image=settings.images.validator,
        sections=(checks,),
        env={
            "MIG_STRATEGY": _mig_strategy(policy),
            "SLUICE_CHECK_PLUGIN": _flag(operands.device_plugin),
            "SLUICE_CHECK_TOOLKIT": _flag(operands.toolkit),
            "SLUICE_CHECK_VARIABLES": msgspec.json.encode(
                checks_env, order="deterministic"
            ).decode(),
            "SLUICE_DRIVER_DIR": install_dir(policy),
        },
        volumes=(*volumes, resources, host_volume("validations", VALIDATIONS, "DirectoryOrCreate")),
        mounts=(*mounts, pod_resources_mount, volume_mount("validations", VALIDATIONS)),
    )


def telemetry(policy: ClusterPolicy, _operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the telemetry agent, which measures GPUs per pod."""
    volumes, mounts = _host(policy, read_only=True)
    resources, pod_resources_mount = _pod_resources(policy)
    return AgentPod(
        image=settings.images.telemetry,
        sections=(policy.spec.dcgm_exporter,),
        volumes=(*volumes, resources),
        mounts=(*mounts, pod_resources_mount),
        annotations=policy.spec.dcgm_exporter.annotations,
        ports=({"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},),
    )


def _host(
    policy: ClusterPolicy, *, read_only: bool
) -> tuple[tuple[JsonObject, ...], tuple[JsonObject, ...]]:
    """Return volumes and mounts of the host's root and devices.

    Mount propagation shows mounts that are made later.
    """
    way = FROM_HOST if read_only else BOTH_WAYS
    seen = volume_mount("host-root", HOST, propagation=way, read_only=read_only)
    root = host_volume("host-root", host_root(policy))
    return (root, host_volume("dev", "/dev")), (seen, volume_mount("dev", "/dev"))


def _pod_resources(policy: ClusterPolicy) -> tuple[JsonObject, JsonObject]:
    """Return volume and mount of the kubelet's pod-resources socket."""
    folder = f"{_kubelet_dir(policy)}/pod-resources"
    seen = volume_mount("pod-resources", "/var/lib/kubelet/pod-resources", read_only=True)
    return host_volume("pod-resources", folder, "DirectoryOrCreate"), seen


def _kubelet_dir(policy: ClusterPolicy) -> str:
    return normalize_directory(
        policy.spec.host_paths.kubelet_root_dir, HostPaths().kubelet_root_dir
    )


def _toolkit_dir(policy: ClusterPolicy) -> str:
    return normalize_directory(policy.spec.toolkit.install_dir, Toolkit().install_dir)


def _mig_strategy(policy: ClusterPolicy) -> str:
    return (policy.spec.mig.strategy or MigStrategy.NONE).value


def _flag(switch: bool) -> str:
    return "true" if switch else "false"
