"""What each agent does on its node: what it is told, and what of the host it sees."""

from collections.abc import Mapping
from typing import Final

import msgspec

from libs.policy.kinds.agents import MigStrategy, Toolkit
from libs.policy.kinds.cluster_policy import ClusterPolicy, HostPaths, Operator
from libs.policy.kinds.common import AgentSection as Section
from libs.policy.render.pod_fields import JsonObject, host_volume, volume_mount
from libs.policy.render.settings import RenderSettings
from libs.policy.render.volumes import BOTH_WAYS, FROM_HOST
from libs.policy.wanted import Operands, host_root, install_dir, normalize_directory

HOST: Final = "/host"
"""Where an agent sees the host's root."""

VALIDATIONS: Final = "/run/nvidia/validations"
METRICS_PORT: Final = 9400


class AgentPod(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's part of a pod."""

    image: str
    args: tuple[str, ...] = ("agent",)
    sections: tuple[Section, ...]
    """Of the policy; where several say the same thing, the first holds."""
    env: Mapping[str, str] = {}
    """Variables of ours; people's hold over them."""
    volumes: tuple[JsonObject, ...] = ()
    mounts: tuple[JsonObject, ...] = ()
    annotations: Mapping[str, str] = {}
    ports: tuple[JsonObject, ...] = ()
    host_pid: bool = False
    tolerates_all: bool = False
    """On nodes with whatever taint."""


def discovery(policy: ClusterPolicy, operands: Operands, settings: RenderSettings) -> AgentPod:
    """Finds out what a node is."""
    volumes, mounts = _host(policy, read_only=True)
    return AgentPod(
        image=settings.images.discovery,
        sections=(policy.spec.gfd,),
        env={"MIG_STRATEGY": _mig(policy), "SLUICE_GPU_LABELS": _word(operands.gpu_labels)},
        volumes=volumes,
        mounts=mounts,
        tolerates_all=True,
    )


def runtime_class(policy: ClusterPolicy) -> str:
    """The name of the RuntimeClass, and of its handler in the container runtime."""
    return policy.spec.operator.runtime_class or Operator().runtime_class


def driver_agent(policy: ClusterPolicy, operands: Operands, settings: RenderSettings) -> AgentPod:
    """Changes a node: drivers, toolkit, CDI, slices. Keeps the gate; says which pods have GPUs."""
    spec = policy.spec
    volumes, mounts = _host(policy, read_only=False)
    resources, listed = _pod_resources(policy)
    optional: JsonObject = {"name": settings.artefacts, "optional": True}
    extra: list[JsonObject] = [resources, {"name": "artefacts", "configMap": optional}]
    seen = [listed, volume_mount("artefacts", "/etc/sluice/artefacts", read_only=True)]
    if spec.mig_manager.config.name:
        layouts: JsonObject = {"name": spec.mig_manager.config.name, "optional": True}
        extra.append({"name": "mig-layouts", "configMap": layouts})
        seen.append(volume_mount("mig-layouts", "/etc/sluice/mig", read_only=True))
    return AgentPod(
        image=settings.images.driver,
        sections=(spec.toolkit, spec.mig_manager),
        env={
            "CDI_ENABLED": _word(spec.cdi.enabled),
            "SLUICE_DRIVER_DIR": install_dir(policy),
            "SLUICE_MIG_DEFAULT": spec.mig_manager.config.default,
            "SLUICE_MIG_MANAGER": _word(operands.mig_manager),
            "SLUICE_RUNTIME_CLASS": runtime_class(policy),
            "SLUICE_TOOLKIT": _word(operands.toolkit),
            "SLUICE_TOOLKIT_DIR": _toolkit_dir(policy),
        },
        volumes=(*volumes, *extra),
        mounts=(*mounts, *seen),
        host_pid=True,
    )


def device_plugin(policy: ClusterPolicy, _operands: Operands, settings: RenderSettings) -> AgentPod:
    """Offers GPUs to the kubelet."""
    spec = policy.spec
    volumes, mounts = _host(policy, read_only=True)
    folder = f"{_kubelet_dir(policy)}/device-plugins"
    told = {"DEVICE_LIST_STRATEGY": "envvar", "MIG_STRATEGY": _mig(policy)}
    if spec.cdi.enabled:
        told |= {
            "CDI_ANNOTATION_PREFIX": "cdi.k8s.io/",
            "DEVICE_LIST_STRATEGY": "cdi-annotations,cdi-cri",
            "NVIDIA_CDI_HOOK_PATH": f"{_toolkit_dir(policy)}/toolkit/nvidia-cdi-hook",
        }
    return AgentPod(
        image=settings.images.driver,
        args=("plugin",),
        sections=(spec.device_plugin,),
        env=told,
        volumes=(*volumes, host_volume("device-plugins", folder, "DirectoryOrCreate")),
        mounts=(*mounts, volume_mount("device-plugins", "/var/lib/kubelet/device-plugins")),
    )


def validator(policy: ClusterPolicy, operands: Operands, settings: RenderSettings) -> AgentPod:
    """Proves that a node's driver works."""
    checks = policy.spec.validator
    named = {
        "cuda": checks.cuda,
        "driver": checks.driver,
        "plugin": checks.plugin,
        "toolkit": checks.toolkit,
    }
    env = {name: {one.name: one.value for one in check.env} for name, check in named.items()}
    said = {name: values for name, values in env.items() if values}
    volumes, mounts = _host(policy, read_only=True)
    resources, listed = _pod_resources(policy)
    return AgentPod(
        image=settings.images.validator,
        sections=(checks,),
        env={
            "MIG_STRATEGY": _mig(policy),
            "SLUICE_CHECK_PLUGIN": _word(operands.device_plugin),
            "SLUICE_CHECK_TOOLKIT": _word(operands.toolkit),
            "SLUICE_CHECK_VARIABLES": msgspec.json.encode(said, order="deterministic").decode(),
            "SLUICE_DRIVER_DIR": install_dir(policy),
        },
        volumes=(*volumes, resources, host_volume("validations", VALIDATIONS, "DirectoryOrCreate")),
        mounts=(*mounts, listed, volume_mount("validations", VALIDATIONS)),
    )


def telemetry(policy: ClusterPolicy, _operands: Operands, settings: RenderSettings) -> AgentPod:
    """Measures GPUs, and tells which pod has which."""
    volumes, mounts = _host(policy, read_only=True)
    resources, listed = _pod_resources(policy)
    return AgentPod(
        image=settings.images.telemetry,
        sections=(policy.spec.dcgm_exporter,),
        volumes=(*volumes, resources),
        mounts=(*mounts, listed),
        annotations=policy.spec.dcgm_exporter.annotations,
        ports=({"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},),
    )


def _host(
    policy: ClusterPolicy, *, read_only: bool
) -> tuple[tuple[JsonObject, ...], tuple[JsonObject, ...]]:
    """Its root, with what is mounted there later; and its devices, which come and go."""
    way = FROM_HOST if read_only else BOTH_WAYS
    seen = volume_mount("host-root", HOST, propagation=way, read_only=read_only)
    root = host_volume("host-root", host_root(policy))
    return (root, host_volume("dev", "/dev")), (seen, volume_mount("dev", "/dev"))


def _pod_resources(policy: ClusterPolicy) -> tuple[JsonObject, JsonObject]:
    """The socket on which the kubelet says what it can allocate, and which pod has which GPU."""
    folder = f"{_kubelet_dir(policy)}/pod-resources"
    seen = volume_mount("pod-resources", "/var/lib/kubelet/pod-resources", read_only=True)
    return host_volume("pod-resources", folder, "DirectoryOrCreate"), seen


def _kubelet_dir(policy: ClusterPolicy) -> str:
    return normalize_directory(
        policy.spec.host_paths.kubelet_root_dir, HostPaths().kubelet_root_dir
    )


def _toolkit_dir(policy: ClusterPolicy) -> str:
    return normalize_directory(policy.spec.toolkit.install_dir, Toolkit().install_dir)


def _mig(policy: ClusterPolicy) -> str:
    return (policy.spec.mig.strategy or MigStrategy.NONE).value


def _word(switch: bool) -> str:
    return "true" if switch else "false"
