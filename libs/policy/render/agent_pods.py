"""The pods of each agent: image, environment, and the parts of the host that it mounts."""

from collections.abc import Mapping
from typing import Final

import msgspec

from libs.policy.kinds.agents import MigStrategy, Toolkit
from libs.policy.kinds.cluster_policy import ClusterPolicy, HostPaths, Operator
from libs.policy.kinds.common import AgentSection as Section
from libs.policy.render.pods import (
    BOTH_WAYS,
    CREATE,
    FROM_HOST,
    JsonObject,
    host_volume,
    volume_mount,
)
from libs.policy.render.rendered import RenderSettings
from libs.policy.wanted import Operands, host_root, install_dir, normalize_directory

HOST: Final = "/host"
"""Where agents mount the host's root."""

VALIDATIONS: Final = "/run/nvidia/validations"
METRICS_PORT: Final = 9400


HostPath = tuple[JsonObject, JsonObject]
"""A volume and its mount."""


class AgentPod(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a pod that are specific to one agent."""

    image: str
    args: tuple[str, ...] = ("agent",)
    sections: tuple[Section, ...]
    """Policy sections that apply to the agent; the first one takes precedence."""
    env: Mapping[str, str] = {}
    """Default variables; variables of the sections override them."""
    volumes: tuple[HostPath, ...] = ()
    annotations: Mapping[str, str] = {}
    ports: tuple[JsonObject, ...] = ()
    host_pid: bool = False
    tolerates_all: bool = False
    """Whether the pod runs on nodes with any taint."""


def discovery(policy: ClusterPolicy, operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the discovery agent, which reports the hardware and system of a node."""
    return AgentPod(
        image=settings.images.discovery,
        sections=(policy.spec.gfd,),
        env={
            "MIG_STRATEGY": _mig_strategy(policy),
            "SLUICE_GPU_LABELS": _flag(operands.gpu_labels),
        },
        volumes=_host(policy),
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
    config_maps = {"artefacts": settings.artefacts, "mig-layouts": spec.mig_manager.config.name}
    paths = {"artefacts": "/etc/sluice/artefacts", "mig-layouts": "/etc/sluice/mig"}
    files = [
        (
            {"name": volume, "configMap": {"name": name, "optional": True}},
            volume_mount(volume, paths[volume], read_only=True),
        )
        for volume, name in config_maps.items()
        if name
    ]
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
        volumes=(*_host(policy, read_only=False), _pod_resources(policy), *files),
        host_pid=True,
    )


def device_plugin(policy: ClusterPolicy, _operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the device plugin."""
    env = {"DEVICE_LIST_STRATEGY": "envvar", "MIG_STRATEGY": _mig_strategy(policy)}
    if policy.spec.cdi.enabled:
        env |= {
            "CDI_ANNOTATION_PREFIX": "cdi.k8s.io/",
            "DEVICE_LIST_STRATEGY": "cdi-annotations,cdi-cri",
            "NVIDIA_CDI_HOOK_PATH": f"{_toolkit_dir(policy)}/toolkit/nvidia-cdi-hook",
        }
    sockets = (
        host_volume("device-plugins", f"{_kubelet_dir(policy)}/device-plugins", CREATE),
        volume_mount("device-plugins", "/var/lib/kubelet/device-plugins"),
    )
    return AgentPod(
        image=settings.images.driver,
        args=("plugin",),
        sections=(policy.spec.device_plugin,),
        env=env,
        volumes=(*_host(policy), sockets),
    )


def validator(policy: ClusterPolicy, operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the validator, which proves that a node's driver works."""
    section = policy.spec.validator
    checks = {
        "cuda": section.cuda,
        "driver": section.driver,
        "plugin": section.plugin,
        "toolkit": section.toolkit,
    }
    variables = {
        name: {variable.name: variable.value for variable in check.env}
        for name, check in checks.items()
        if check.env
    }
    validations = (
        host_volume("validations", VALIDATIONS, CREATE),
        volume_mount("validations", VALIDATIONS),
    )
    return AgentPod(
        image=settings.images.validator,
        sections=(section,),
        env={
            "MIG_STRATEGY": _mig_strategy(policy),
            "SLUICE_CHECK_PLUGIN": _flag(operands.device_plugin),
            "SLUICE_CHECK_TOOLKIT": _flag(operands.toolkit),
            "SLUICE_CHECK_VARIABLES": msgspec.json.encode(
                variables, order="deterministic"
            ).decode(),
            "SLUICE_DRIVER_DIR": install_dir(policy),
        },
        volumes=(*_host(policy), _pod_resources(policy), validations),
    )


def telemetry(policy: ClusterPolicy, _operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the telemetry agent, which measures GPUs per pod."""
    section = policy.spec.dcgm_exporter
    return AgentPod(
        image=settings.images.telemetry,
        sections=(section,),
        volumes=(*_host(policy), _pod_resources(policy)),
        annotations=section.annotations,
        ports=({"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},),
    )


def _host(policy: ClusterPolicy, *, read_only: bool = True) -> tuple[HostPath, HostPath]:
    """Return the host's root and devices; mount propagation shows mounts that are made later."""
    propagation = FROM_HOST if read_only else BOTH_WAYS
    mount = volume_mount("host-root", HOST, propagation=propagation, read_only=read_only)
    devices = (host_volume("dev", "/dev"), volume_mount("dev", "/dev"))
    return (host_volume("host-root", host_root(policy)), mount), devices


def _pod_resources(policy: ClusterPolicy) -> HostPath:
    """Return the directory of the kubelet's pod-resources socket."""
    return (
        host_volume("pod-resources", f"{_kubelet_dir(policy)}/pod-resources", CREATE),
        volume_mount("pod-resources", "/var/lib/kubelet/pod-resources", read_only=True),
    )


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
