"""The pods of each agent: image, environment, and the parts of the host that it mounts."""

from collections.abc import Mapping
from typing import Final

import msgspec

from libs.policy.kinds.cluster_policy import ClusterPolicy, Operator
from libs.policy.kinds.common import AgentSection as Section
from libs.policy.kinds.common import ResourceRequirements
from libs.policy.render.pod_fields import (
    BOTH_WAYS,
    FROM_HOST,
    JsonObject,
    host_volume,
    volume_mount,
)
from libs.policy.render.rendered import RenderSettings
from libs.policy.wanted import Operands, host_root, install_dir, kubelet_root

HOST: Final = "/host"
"""Where agents mount the host's root."""

METRICS_PORT: Final = 9400
METRIC_LIST: Final = "dcgm-metrics.csv"
"""The key of the ConfigMap with the list of metrics, and the name of the file."""
METRIC_LIST_DIR: Final = "/etc/dcgm-exporter"

POD_RESOURCES: Final = "/var/lib/kubelet/pod-resources"
"""Where the telemetry agent has the directory of the kubelet's socket, `kubelet.sock`.

The directory is mounted and not the socket, because the kubelet replaces it when it restarts.
"""

VALIDATIONS: Final = "/run/nvidia/validations"
"""Where the validator writes what is proven on the node, for the pods of others."""

Volume = tuple[JsonObject, JsonObject]
"""A volume and its mount."""


def _defaults(*, cpu: str, memory: str, at_most: str) -> ResourceRequirements:
    """Return requests, and a limit of memory.

    CPU has no limit: an agent that is throttled reports late, and holds up an upgrade.
    """
    return ResourceRequirements(limits={"memory": at_most}, requests={"cpu": cpu, "memory": memory})


# With 8 GPUs, agents use 39 (discovery), 28 (driver), 55 (telemetry) and 26 MiB (validator), and
# less than 1 % of a core each; telemetry has peaks of 80 MiB.
_DISCOVERY: Final = _defaults(cpu="10m", memory="48Mi", at_most="128Mi")
_DRIVER: Final = _defaults(cpu="10m", memory="32Mi", at_most="256Mi")
_TELEMETRY: Final = _defaults(cpu="20m", memory="80Mi", at_most="256Mi")
_VALIDATOR: Final = _defaults(cpu="10m", memory="32Mi", at_most="4Gi")
"""The check of CUDA has a process per GPU, eight at once, of which each may need 0.5 GiB."""


class AgentPod(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a pod that are specific to one agent."""

    image: str
    args: tuple[str, ...] = ("agent",)
    sections: tuple[Section, ...]
    """Policy sections that apply to the agent; the first one takes precedence."""
    resources: ResourceRequirements
    """What the container gets of each resource that no section mentions."""
    env: Mapping[str, str] = {}
    volumes: tuple[Volume, ...] = ()
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
        resources=_DISCOVERY,
        env={"SLUICE_GPU_LABELS": "true" if operands.gpu_labels else "false"},
        volumes=_host(policy),
        tolerates_all=True,
    )


def runtime_class(policy: ClusterPolicy) -> str:
    """Return the name of the RuntimeClass, which is also its handler in the container runtime."""
    return policy.spec.operator.runtime_class or Operator().runtime_class


def driver_agent(policy: ClusterPolicy, _operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the driver agent.

    It swaps drivers, keeps the gate, and reports which pods use GPUs.
    """
    spec = policy.spec
    return AgentPod(
        image=settings.images.driver,
        sections=(spec.toolkit, spec.mig_manager),
        resources=_DRIVER,
        env={"SLUICE_CHANGE_THIS_MACHINE": "true", "SLUICE_DRIVER_DIR": install_dir(policy)},
        volumes=_host(policy, read_only=False),
        host_pid=True,
    )


def validator(policy: ClusterPolicy, _operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the validator, which proves that a node's driver works."""
    return AgentPod(
        image=settings.images.validator,
        sections=(policy.spec.validator,),
        resources=_VALIDATOR,
        volumes=(*_host(policy), _validations()),
    )


def telemetry(policy: ClusterPolicy, _operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the telemetry agent, which measures GPUs per pod."""
    section = policy.spec.dcgm_exporter
    listed = section.config.name
    env = {"SLUICE_POD_RESOURCES": f"{POD_RESOURCES}/kubelet.sock"}
    env |= {variable.name: variable.value for variable in settings.telemetry_env}
    if listed:
        env["SLUICE_METRIC_LIST"] = f"{METRIC_LIST_DIR}/{METRIC_LIST}"
    return AgentPod(
        image=settings.images.telemetry,
        sections=(section,),
        resources=_TELEMETRY,
        env=env,
        volumes=(
            *_host(policy),
            _pod_resources(policy),
            *((_metric_list(listed),) if listed else ()),
        ),
        annotations=section.annotations,
        ports=({"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},),
    )


def _pod_resources(policy: ClusterPolicy) -> Volume:
    return (
        host_volume("pod-resources", f"{kubelet_root(policy).rstrip('/')}/pod-resources"),
        volume_mount("pod-resources", POD_RESOURCES, read_only=True),
    )


def _validations() -> Volume:
    """Return the folder of the files that tell other pods what is proven.

    It covers the same folder of the host's root, which the validator may only read.
    """
    return (
        host_volume("validations", VALIDATIONS, "DirectoryOrCreate"),
        volume_mount("validations", f"{HOST}{VALIDATIONS}"),
    )


def _metric_list(config_map: str) -> Volume:
    """Return the list of metrics; the pod starts without the ConfigMap, and its agent says so.

    It is a folder, because the kubelet never replaces a file that is mounted alone.
    """
    items = [{"key": METRIC_LIST, "path": METRIC_LIST}]
    volume = {
        "name": "metric-list",
        "configMap": {"name": config_map, "items": items, "optional": True},
    }
    return volume, volume_mount("metric-list", METRIC_LIST_DIR, read_only=True)


def _host(policy: ClusterPolicy, *, read_only: bool = True) -> tuple[Volume, Volume]:
    """Return the host's root and devices; mount propagation shows mounts that are made later."""
    propagation = FROM_HOST if read_only else BOTH_WAYS
    mount = volume_mount("host-root", HOST, propagation=propagation, read_only=read_only)
    devices = (host_volume("dev", "/dev"), volume_mount("dev", "/dev"))
    return (host_volume("host-root", host_root(policy)), mount), devices
