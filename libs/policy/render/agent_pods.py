"""The pods of each agent: image, environment, and the parts of the host that it mounts."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from libs.policy import artefacts
from libs.policy.kinds.agents import (
    NRI_GPUS,
    NRI_MANAGEMENT,
    PLUGIN_VARIABLES,
    RUNTIME_VARIABLES,
)
from libs.policy.kinds.cluster_policy import ClusterPolicy, Operator
from libs.policy.kinds.common import AgentSection as Section
from libs.policy.kinds.common import EnvVar, ResourceRequirements
from libs.policy.render.pod_fields import (
    BOTH_WAYS,
    FROM_HOST,
    JsonObject,
    host_volume,
    volume_mount,
)
from libs.policy.render.rendered import DEVICE_PLUGIN_APP, DRA_APP, RenderSettings
from libs.policy.wanted import Operands, host_root, kubelet_root

HOST: Final = "/host"
"""Where agents mount the host's root."""
ENDS: Final = "SLUICE_ENDS"
"""The variable of the plugin for claims that only takes back what pods have."""

METRICS_PORT: Final = 9400
NODE_STATUS_PORT: Final = 8000
METRIC_LIST: Final = "dcgm-metrics.csv"
"""The key of the ConfigMap with the list of metrics, and the name of the file."""
METRIC_LIST_DIR: Final = "/etc/dcgm-exporter"

POD_RESOURCES: Final = "/var/lib/kubelet/pod-resources"
"""Where telemetry agent and validator have the directory of the kubelet's socket, `kubelet.sock`.

The directory is mounted and not the socket, because the kubelet replaces it when it restarts.
"""

VALIDATIONS: Final = "/run/nvidia/validations"
"""Where the validator writes what is proven on the node, for the pods of others."""

DEVICE_PLUGINS: Final = "/var/lib/kubelet/device-plugins"
"""Where the device plugin has the kubelet's directory of sockets."""
PLUGINS: Final = "/var/lib/kubelet/plugins"
PLUGIN_REGISTRY: Final = "/var/lib/kubelet/plugins_registry"
"""Where the plugin for claims has the kubelet's directories of plugins and of their sockets."""
PLUGIN_CONFIG_DIR: Final = "/etc/nvidia-device-plugin"
ARTEFACTS_DIR: Final = "/etc/sluice-driver-artefacts"
"""Where the driver agent has the ConfigMap that names artefacts."""

PERSISTENCED: Final = "/var/run/nvidia-persistenced"
"""Where NVML looks for the daemon that keeps GPUs open. The driver agent, which divides them, makes
a link there to the socket of the driver that runs."""

Volume = tuple[JsonObject, JsonObject]
"""A volume and its mount."""


def _defaults(*, cpu: str, memory: str, at_most: str) -> ResourceRequirements:
    """Return requests, and a limit of memory.

    CPU has no limit: an agent that is throttled reports late, and holds up an upgrade.
    """
    return ResourceRequirements(limits={"memory": at_most}, requests={"cpu": cpu, "memory": memory})


# With 8 GPUs, agents use 39 (discovery), 28 (driver), 51 (device plugin), 55 (telemetry) and 26 MiB
# (validator), and less than 1 % of a core each; telemetry has peaks of 80 MiB.
_DISCOVERY: Final = _defaults(cpu="10m", memory="48Mi", at_most="128Mi")
_DRIVER: Final = _defaults(cpu="10m", memory="32Mi", at_most="256Mi")
_DEVICE_PLUGIN: Final = _defaults(cpu="10m", memory="64Mi", at_most="256Mi")
_DRA: Final = _defaults(cpu="10m", memory="96Mi", at_most="256Mi")
_TELEMETRY: Final = _defaults(cpu="20m", memory="80Mi", at_most="256Mi")
_VALIDATOR: Final = _defaults(cpu="10m", memory="48Mi", at_most="4Gi")
"""The check of CUDA has a process per GPU, eight at once, of which each may need 0.5 GiB."""


class AgentPod(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a pod that are specific to one agent."""

    image: str
    service: str = ""
    """The service of the agent's program; empty: that of its name."""
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
    asks_api_server: bool = False
    """Whether the pod has a token for the API server besides that for the bus."""
    tolerates_all: bool = False
    """Whether the pod runs on nodes with any taint."""
    startup_taints: tuple[str, ...] = ()
    """The keys of the taints that it tolerates because new nodes come with them."""
    never_beside: tuple[str, ...] = ()
    """The labels `app` of pods that may not be on a node at the same time, be it for a moment."""
    ends: bool = False
    """Whether it only takes back what pods have, until they end."""


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


def driver_agent(policy: ClusterPolicy, operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the driver agent.

    It swaps drivers, keeps the gate and the CDI specs, configures the container runtime, and
    reports which pods use GPUs.
    """
    spec = policy.spec
    return AgentPod(
        image=settings.images.driver,
        sections=(spec.toolkit, spec.mig_manager),
        resources=_DRIVER,
        env={
            **_variables(spec.toolkit.env, RUNTIME_VARIABLES),
            "SLUICE_CHANGE_THIS_MACHINE": "true",
            "SLUICE_RUNTIME_CLASS": runtime_class(policy),
            "SLUICE_TOOLKIT": "true" if operands.toolkit else "false",
            **_nri(policy, operands),
            **({"SLUICE_ARTEFACTS": ARTEFACTS_DIR} if operands.artefacts else {}),
        },
        volumes=(
            *_host(policy, read_only=False),
            ({"name": "persistenced", "emptyDir": {}}, volume_mount("persistenced", PERSISTENCED)),
            *(
                (_config_folder("artefacts", artefacts.CONFIG_MAP, ARTEFACTS_DIR),)
                if operands.artefacts
                else ()
            ),
        ),
        host_pid=True,
    )


def _nri(policy: ClusterPolicy, operands: Operands) -> Mapping[str, str]:
    """Return the settings of the plugin of NRI; none where it is off."""
    if not (operands.toolkit and policy.spec.cdi.nri_plugin_enabled):
        return {}
    env = {variable.name: variable.value for variable in policy.spec.toolkit.env}
    settings = {
        "SLUICE_NRI": "true",
        "SLUICE_NRI_GPU_NAMESPACES": env.get(NRI_GPUS, ""),
        "SLUICE_NRI_MANAGEMENT_NAMESPACES": env.get(NRI_MANAGEMENT, ""),
    }
    return {name: value for name, value in settings.items() if value}


_FOR_ANOTHER_TOOLKIT: Final = {
    "SLUICE_DEVICE_LIST_STRATEGY": "envvar",
    "SLUICE_PASS_DEVICE_SPECS": "true",
}
"""The settings of the GPU Operator without CDI: there are no CDI specs of ours then."""


def device_plugin(policy: ClusterPolicy, operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the device plugin, which offers a node's GPUs to the kubelet."""
    section = policy.spec.device_plugin
    # As in the GPU Operator, GPUDirect Storage comes with the verbs of RDMA.
    switches = {"GDS": operands.gds, "MOFED": operands.gds, "GDRCOPY": operands.gdrcopy}
    env = {f"SLUICE_{name}_ENABLED": "true" for name, is_on in switches.items() if is_on}
    if not policy.spec.toolkit.enabled:
        env |= _FOR_ANOTHER_TOOLKIT
    env |= _variables(section.env, PLUGIN_VARIABLES)
    env["SLUICE_DEVICE_PLUGINS"] = DEVICE_PLUGINS
    env["SLUICE_POD_RESOURCES"] = f"{POD_RESOURCES}/kubelet.sock"
    env["SLUICE_MIG_STRATEGY"] = operands.mig_strategy.value
    configs: list[Volume] = []
    if section.config.name:
        env["SLUICE_PLUGIN_CONFIG_DIR"] = PLUGIN_CONFIG_DIR
        if section.config.default:
            env["SLUICE_PLUGIN_CONFIG"] = section.config.default
        configs.append(_config_folder("plugin-config", section.config.name, PLUGIN_CONFIG_DIR))
    return AgentPod(
        image=settings.images.driver,
        service="driver",
        args=("plugin",),
        sections=(section,),
        resources=_DEVICE_PLUGIN,
        env=env,
        volumes=(
            *_host(policy),
            _of_kubelet(policy, "device-plugins", DEVICE_PLUGINS, read_only=False),
            _of_kubelet(policy, "pod-resources", POD_RESOURCES),
            *configs,
        ),
    )


def dra(policy: ClusterPolicy, operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the plugin for claims, the only agent that asks the API server."""
    ends = not operands.dra
    return AgentPod(
        image=settings.images.driver,
        service="driver",
        args=("dra",),
        sections=(policy.spec.device_plugin,),
        resources=_DRA,
        env={
            "SLUICE_KUBELET_PLUGINS": f"{kubelet_root(policy).rstrip('/')}/plugins",
            "SLUICE_PLUGINS": PLUGINS,
            "SLUICE_PLUGIN_REGISTRY": PLUGIN_REGISTRY,
            "SLUICE_POD_RESOURCES": f"{POD_RESOURCES}/kubelet.sock",
            **({ENDS: "true"} if ends else {}),
        },
        volumes=(
            *_host(policy),
            _of_kubelet(policy, "plugins", PLUGINS, read_only=False),
            _of_kubelet(policy, "plugins_registry", PLUGIN_REGISTRY, read_only=False),
            _of_kubelet(policy, "pod-resources", POD_RESOURCES),
        ),
        asks_api_server=True,
        # Two processes would overwrite what the other has noted as prepared.
        never_beside=(DRA_APP,) if ends else (DEVICE_PLUGIN_APP, DRA_APP),
        ends=ends,
    )


def validator(policy: ClusterPolicy, operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the validator, which proves that a node's driver works."""
    port = {"name": "node-status", "containerPort": NODE_STATUS_PORT, "protocol": "TCP"}
    return AgentPod(
        image=settings.images.validator,
        sections=(policy.spec.validator, policy.spec.node_status_exporter),
        resources=_VALIDATOR,
        env={
            "SLUICE_TOOLKIT": "true" if operands.toolkit else "false",
            "SLUICE_EXPORT_NODE_STATUS": "true" if operands.node_status else "false",
            "SLUICE_MIG_STRATEGY": operands.mig_strategy.value,
            "SLUICE_POD_RESOURCES": f"{POD_RESOURCES}/kubelet.sock",
        },
        volumes=(
            *_host(policy),
            _validations(),
            _of_kubelet(policy, "pod-resources", POD_RESOURCES),
        ),
        ports=(port,) if operands.node_status else (),
    )


def telemetry(policy: ClusterPolicy, _operands: Operands, settings: RenderSettings) -> AgentPod:
    """Return the pod of the telemetry agent, which measures GPUs per pod."""
    section = policy.spec.dcgm_exporter
    listed = section.config.name
    env = {"SLUICE_POD_RESOURCES": f"{POD_RESOURCES}/kubelet.sock"}
    env |= {variable.name: variable.value for variable in settings.telemetry_env}
    if listed:
        env["SLUICE_METRIC_LIST"] = f"{METRIC_LIST_DIR}/{METRIC_LIST}"
    metric_list = _config_file("metric-list", listed, METRIC_LIST, METRIC_LIST, METRIC_LIST_DIR)
    return AgentPod(
        image=settings.images.telemetry,
        sections=(section,),
        resources=_TELEMETRY,
        env=env,
        volumes=(
            *_host(policy),
            _of_kubelet(policy, "pod-resources", POD_RESOURCES),
            *((metric_list,) if listed else ()),
        ),
        annotations=section.annotations,
        ports=({"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},),
    )


def _variables(given: Iterable[EnvVar], known: Collection[str]) -> dict[str, str]:
    """Return the variables that have an effect, by their names here."""
    return {f"SLUICE_{each.name}": each.value for each in given if each.name in known}


def _of_kubelet(policy: ClusterPolicy, folder: str, path: str, *, read_only: bool = True) -> Volume:
    """Return a folder of the kubelet, with the name that it has there."""
    return (
        host_volume(folder.replace("_", "-"), f"{kubelet_root(policy).rstrip('/')}/{folder}"),
        volume_mount(folder.replace("_", "-"), path, read_only=read_only),
    )


def _validations() -> Volume:
    """Return the folder of the files that tell other pods what is proven.

    It covers the same folder of the host's root, which the validator may only read.
    """
    return (
        host_volume("validations", VALIDATIONS, "DirectoryOrCreate"),
        volume_mount("validations", f"{HOST}{VALIDATIONS}"),
    )


def _config_file(name: str, config_map: str, key: str, file: str, folder: str) -> Volume:
    """Return a key of a ConfigMap; the pod starts without it, and its agent says so.

    It is a folder, because the kubelet never replaces a file that is mounted alone.
    """
    items = [{"key": key, "path": file}]
    volume = {"name": name, "configMap": {"name": config_map, "items": items, "optional": True}}
    return volume, volume_mount(name, folder, read_only=True)


def _config_folder(name: str, config_map: str, folder: str) -> Volume:
    """Return all keys of a ConfigMap; the pod starts without it, and its agent says so."""
    volume = {"name": name, "configMap": {"name": config_map, "optional": True}}
    return volume, volume_mount(name, folder, read_only=True)


def _host(policy: ClusterPolicy, *, read_only: bool = True) -> tuple[Volume, Volume]:
    """Return the host's root and devices; mount propagation shows mounts that are made later."""
    propagation = FROM_HOST if read_only else BOTH_WAYS
    mount = volume_mount("host-root", HOST, propagation=propagation, read_only=read_only)
    devices = (host_volume("dev", "/dev"), volume_mount("dev", "/dev"))
    return (host_volume("host-root", host_root(policy)), mount), devices
