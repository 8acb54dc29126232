"""The sections of ClusterPolicy that Sluice's own agents carry out."""

from enum import StrEnum
from typing import Annotated

import msgspec

from libs.policy.kinds.common import AgentSection, EnvVar, Labels
from libs.policy.kinds.service_monitor import ServiceMonitor
from libs.policy.shapes import About, PolicyStruct

NO_INSTALLATION = "Sluice writes CDI specs, and installs no programs for containers on the host"
CDI_ALONE = "Sluice gives GPUs to containers by CDI alone"
NO_MIG_DEFAULT = (
    "the GPUs of a node without the label nvidia.com/mig.config stay divided as they are: set the"
    " label to all-disabled where MIG is to be off"
)
WITH_REBOOT = "WITH_REBOOT"
MIG_EFFECT = "true: the GPUs of a node are divided as its label nvidia.com/mig.config says"
NO_SETTINGS = "this version's validator takes no settings"
NO_MPS = "Sluice does not support sharing by MPS"
PLUGIN_VARIABLES = (
    "CDI_ANNOTATION_PREFIX",
    "DEVICE_ID_STRATEGY",
    "DEVICE_LIST_STRATEGY",
    "DP_DISABLE_HEALTHCHECKS",
    "DP_ENABLE_HEALTHCHECKS",
    "GDRCOPY_ENABLED",
    "GDS_ENABLED",
    "MOFED_ENABLED",
    "PASS_DEVICE_SPECS",
    "SHARED_DEVICES_ALLOCATION_POLICY",
)
"""The variables of NVIDIA's device plugin that have an effect here."""
NRI_GPUS = "NRI_GPU_CDI_DEVICE_NAMESPACES"
"""The namespaces whose pods may have GPUs by annotation; NVIDIA's toolkit lets all have them."""
NRI_MANAGEMENT = "NRI_MANAGEMENT_CDI_DEVICE_NAMESPACES"
"""The namespaces, beside Sluice's own, whose pods may have management devices by annotation."""
NRI_VARIABLES = (NRI_GPUS, NRI_MANAGEMENT)
"""The variables of NVIDIA's toolkit that concern the plugin of NRI."""
NO_MONITOR = "Sluice creates a ServiceMonitor for the telemetry agents only"
NO_POD_LABELS = "the telemetry agent does not read pods"
NO_JOB_MAPPING = "the telemetry agent does not map jobs"
NO_GPU_CLIENTS = "the driver agent itself finds the processes that use a GPU"


class MigStrategy(StrEnum):
    """How MIG devices are offered to pods."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class Toolkit(AgentSection, frozen=True, kw_only=True):
    """The container toolkit: the driver agent writes the CDI specs of a node's GPUs."""

    enabled: Annotated[
        bool,
        About(
            "Whether containers can have GPUs.",
            effect="true: the driver agent keeps CDI specs of the node's GPUs in /var/run/cdi, and"
            " changes no container runtime: containerd 2 and CRI-O read them by default,"
            " containerd 1.7 with enable_cdi; false: another toolkit does that",
        ),
    ] = True
    env: Annotated[
        tuple[EnvVar, ...],
        About(
            "Environment variables.",
            effect=f"with cdi.nriPluginEnabled, {NRI_GPUS} and {NRI_MANAGEMENT} list the"
            " namespaces, with commas between them, whose pods may have GPUs and management"
            " devices by annotation; other variables have no effect",
        ),
    ] = ()
    install_dir: Annotated[
        str,
        About(
            "The installation directory on the host.",
            no_effect_because=NO_INSTALLATION,
            stored=True,
        ),
    ] = "/usr/local/nvidia"


class PluginConfig(PolicyStruct, frozen=True, kw_only=True):
    """Configurations of the device plugin, by node."""

    name: Annotated[
        str,
        About(
            "The ConfigMap that holds the configurations.",
            effect="mounted into the device plugin, which refuses MPS, if a default is named too",
            unset="none: each device is offered once",
        ),
    ] = ""
    default: Annotated[
        str,
        About(
            "The configuration of nodes that do not select one.",
            effect="the configuration of all nodes: the label nvidia.com/device-plugin.config has"
            " no effect",
            unset="none: each device is offered once",
        ),
    ] = ""


class Mps(PolicyStruct, frozen=True, kw_only=True):
    """Sharing of a GPU by the CUDA multi-process service."""

    root: Annotated[str, About("The MPS directory on the host.", stored=True)] = "/run/nvidia/mps"


class DevicePlugin(AgentSection, frozen=True, kw_only=True):
    """The kubelet's device plugin."""

    enabled: Annotated[
        bool,
        About(
            "Whether GPUs are offered to pods.",
            effect="deploys the device plugin; false: another one may run",
        ),
    ] = True
    env: Annotated[
        tuple[EnvVar, ...],
        About(
            "Environment variables.",
            effect=f"set in the device plugin: {', '.join(PLUGIN_VARIABLES)}; other variables have"
            " no effect",
        ),
    ] = ()
    config: Annotated[PluginConfig, About("Configurations of the device plugin.")] = PluginConfig()
    mps: Annotated[Mps, About("Sharing by MPS.", no_effect_because=NO_MPS)] = Mps()


class ExporterConfig(PolicyStruct, frozen=True, kw_only=True):
    """Which measurements are exported."""

    name: Annotated[
        str,
        About(
            "The ConfigMap that lists the metrics, under the key dcgm-metrics.csv.",
            effect="mounted into the telemetry agent, which follows its changes",
            unset="the default list of dcgm-exporter",
        ),
    ] = ""


class ExporterService(PolicyStruct, frozen=True, kw_only=True):
    """The Service in front of the exporter."""

    type: Annotated[
        str, About("The type of the Service.", effect="set on the Service", unset="ClusterIP")
    ] = ""
    internal_traffic_policy: Annotated[
        str,
        About(
            "The internalTrafficPolicy of the Service.",
            effect="set on the Service",
            unset="Cluster",
        ),
    ] = ""


class HpcJobMapping(PolicyStruct, frozen=True, kw_only=True):
    """Mapping of GPUs to HPC jobs, read from files."""

    enabled: Annotated[bool, About("Whether job mapping files are read.", unsupported=True)] = False
    directory: Annotated[
        str, About("The directory with the files.", unset="/var/lib/dcgm-exporter/job-mapping")
    ] = ""


class DcgmExporter(AgentSection, frozen=True, kw_only=True):
    """GPU metrics for Prometheus."""

    enabled: Annotated[
        bool, About("Whether GPU metrics are collected.", effect="deploys the telemetry agent")
    ] = True
    annotations: Annotated[
        Labels, About("Annotations of its pods.", effect="set on the telemetry agent's pods")
    ] = {}
    config: Annotated[ExporterConfig, About("Which metrics are exported.")] = ExporterConfig()
    service_monitor: Annotated[ServiceMonitor, About("The ServiceMonitor for Prometheus.")] = (
        ServiceMonitor()
    )
    service: Annotated[ExporterService, About("The Service of the exporter.")] = ExporterService()
    host_pid: Annotated[
        bool,
        About(
            "Whether the pod shares the host's process namespace.",
            no_effect_because="the telemetry agent reports no processes",
        ),
    ] = msgspec.field(name="hostPID", default=False)
    enable_pod_labels: Annotated[
        bool,
        About(
            "Whether metrics carry the labels of pods.",
            no_effect_because=NO_POD_LABELS,
            unsupported=True,
        ),
    ] = False
    enable_pod_uid: Annotated[
        bool,
        About(
            "Whether metrics carry the UIDs of pods.",
            no_effect_because=NO_POD_LABELS,
            unsupported=True,
        ),
    ] = msgspec.field(name="enablePodUID", default=False)
    pod_label_allowlist_regex: Annotated[
        tuple[str, ...],
        About("Regular expressions for the pod labels to export.", no_effect_because=NO_POD_LABELS),
    ] = ()
    hpc_job_mapping: Annotated[
        HpcJobMapping, About("Mapping of GPUs to HPC jobs.", no_effect_because=NO_JOB_MAPPING)
    ] = HpcJobMapping()


class Gfd(AgentSection, frozen=True, kw_only=True):
    """GPU feature discovery: labels that describe a node's GPUs."""

    enabled: Annotated[
        bool,
        About(
            "Whether nodes get labels that describe their GPUs.",
            effect="the discovery agent reports GPUs, and discovery writes the labels",
        ),
    ] = True


class MigSection(PolicyStruct, frozen=True, kw_only=True):
    """MIG settings."""

    strategy: Annotated[
        MigStrategy | None,
        About(
            "How MIG devices are shown in the labels of nodes.",
            unset="none",
            effect="discovery labels nodes for this strategy; pods are not offered MIG devices yet",
        ),
    ] = None


class MigManagerConfig(PolicyStruct, frozen=True, kw_only=True):
    """The available MIG layouts."""

    name: Annotated[
        str,
        About(
            "The ConfigMap that holds the MIG layouts.",
            effect="its key config.yaml has the configurations that labels of nodes can name",
            unset="the layouts that come with Sluice",
        ),
    ] = ""
    default: Annotated[
        str,
        About(
            "The layout of nodes that do not select one.",
            no_effect_because=NO_MIG_DEFAULT,
            stored=True,
            choices=("all-disabled", ""),
        ),
    ] = "all-disabled"


class GpuClientsConfig(PolicyStruct, frozen=True, kw_only=True):
    """Host services that must release GPUs before MIG changes."""

    name: Annotated[str, About("The ConfigMap with the names of the services.")] = ""


class MigManager(AgentSection, frozen=True, kw_only=True):
    """MIG changes on nodes, made by the driver agent."""

    enabled: Annotated[
        bool,
        About(
            "Whether MIG layouts are applied to nodes.",
            effect=f"{MIG_EFFECT}; false: labels about MIG are left alone",
        ),
    ] = True
    env: Annotated[
        tuple[EnvVar, ...],
        About(
            "Environment variables.",
            effect=f"{WITH_REBOOT}=true accepts layouts that only a reboot of the node completes,"
            " which Sluice does not make; other variables have no effect",
        ),
    ] = ()
    config: Annotated[MigManagerConfig, About("The MIG layouts.")] = MigManagerConfig()
    gpu_clients_config: Annotated[
        GpuClientsConfig, About("Host services that use GPUs.", no_effect_because=NO_GPU_CLIENTS)
    ] = GpuClientsConfig()


class ValidatorCheck(PolicyStruct, frozen=True, kw_only=True):
    """One check of the validator."""

    env: Annotated[
        tuple[EnvVar, ...],
        About("Environment variables.", no_effect_because=NO_SETTINGS),
    ] = ()


class Validator(AgentSection, frozen=True, kw_only=True):
    """The checks that prove that a node's driver works."""

    plugin: Annotated[ValidatorCheck, About("The check of the device plugin.")] = ValidatorCheck()
    toolkit: Annotated[ValidatorCheck, About("The check of the toolkit.")] = ValidatorCheck()
    driver: Annotated[ValidatorCheck, About("The check of the driver.")] = ValidatorCheck()
    cuda: Annotated[ValidatorCheck, About("The check of CUDA.")] = ValidatorCheck()
    vfio_pci: Annotated[
        ValidatorCheck,
        About("The check of VFIO.", no_effect_because="Sluice does not support VFIO"),
    ] = msgspec.field(name="vfioPCI", default=ValidatorCheck())
    vgpu_manager: Annotated[
        ValidatorCheck,
        About("The check of the vGPU manager.", no_effect_because="Sluice does not support vGPU"),
    ] = ValidatorCheck()
    vgpu_devices: Annotated[
        ValidatorCheck,
        About("The check of vGPU devices.", no_effect_because="Sluice does not support vGPU"),
    ] = ValidatorCheck()
