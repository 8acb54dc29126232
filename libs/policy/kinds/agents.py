"""The sections of ClusterPolicy whose work our own agents do."""

from enum import StrEnum
from typing import Annotated

import msgspec

from libs.policy.kinds.common import Agent, EnvVar, Labels, ServiceMonitor
from libs.policy.shapes import About, Part

NO_MPS = "sharing by MPS is not built"
NO_PLUGIN_CONFIG = "the device plugin has one configuration: time slicing is not built"
NO_EXPORTER_CONFIG = "the telemetry agent has its own list of measurements"
NO_SERVICE = "the telemetry agent's Service comes with Sluice's manifests"
NO_MONITOR = "a ServiceMonitor comes with Sluice's manifests, if at all"
NO_POD_LABELS = "the telemetry agent does not read pods"
NO_JOB_MAPPING = "the telemetry agent does not map jobs"
NO_GPU_CLIENTS = "the driver agent finds out itself who holds a GPU"


class MigStrategy(StrEnum):
    """How the slices of a GPU are offered to pods."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class Toolkit(Agent, frozen=True, kw_only=True):
    """The container toolkit, which the driver agent installs."""

    enabled: Annotated[
        bool,
        About(
            "Whether the container toolkit is installed.",
            effect="the driver agent installs toolkit and CDI specs",
        ),
    ] = True
    install_dir: Annotated[
        str,
        About(
            "Where on the host.",
            effect="the directory that the driver agent installs into",
            stored=True,
        ),
    ] = "/usr/local/nvidia"


class PluginConfig(Part, frozen=True, kw_only=True):
    """Configurations of the device plugin, by node."""

    name: Annotated[str, About("The ConfigMap with configurations.")] = ""
    default: Annotated[str, About("The configuration of a node that names none.")] = ""


class Mps(Part, frozen=True, kw_only=True):
    """Sharing of a GPU by the CUDA multi-process service."""

    root: Annotated[str, About("Where on the host.", stored=True)] = "/run/nvidia/mps"


class DevicePlugin(Agent, frozen=True, kw_only=True):
    """The kubelet's device plugin."""

    enabled: Annotated[
        bool,
        About("Whether GPUs are offered to pods.", effect="deploys the device plugin"),
    ] = True
    config: Annotated[PluginConfig, About("Configurations by node.", moot=NO_PLUGIN_CONFIG)] = (
        PluginConfig()
    )
    mps: Annotated[Mps, About("Sharing by MPS.", moot=NO_MPS)] = Mps()


class ExporterConfig(Part, frozen=True, kw_only=True):
    """Which measurements are exported."""

    name: Annotated[str, About("The ConfigMap with the list.")] = ""


class ExporterService(Part, frozen=True, kw_only=True):
    """The Service in front of the exporter."""

    type: Annotated[str, About("Its type.")] = ""
    internal_traffic_policy: Annotated[str, About("Where traffic in the cluster goes.")] = ""


class HpcJobMapping(Part, frozen=True, kw_only=True):
    """Which job a GPU works for, told by files."""

    enabled: Annotated[bool, About("Whether files are read.", absent=True)] = False
    directory: Annotated[
        str, About("Where they are.", unset="/var/lib/dcgm-exporter/job-mapping")
    ] = ""


class DcgmExporter(Agent, frozen=True, kw_only=True):
    """Measurements of GPUs for Prometheus."""

    enabled: Annotated[
        bool,
        About("Whether GPUs are measured.", effect="deploys the telemetry agent"),
    ] = True
    annotations: Annotated[
        Labels, About("Annotations of its pods.", effect="as in the telemetry agent's pods")
    ] = {}
    config: Annotated[ExporterConfig, About("Which measurements.", moot=NO_EXPORTER_CONFIG)] = (
        ExporterConfig()
    )
    service_monitor: Annotated[
        ServiceMonitor, About("How Prometheus is told.", moot=NO_MONITOR)
    ] = ServiceMonitor()
    service: Annotated[ExporterService, About("The Service in front of it.", moot=NO_SERVICE)] = (
        ExporterService()
    )
    host_pid: Annotated[
        bool,
        About(
            "Whether it sees the host's processes.",
            moot="the telemetry agent learns processes from the driver agent",
        ),
    ] = msgspec.field(name="hostPID", default=False)
    enable_pod_labels: Annotated[
        bool, About("Whether pods' labels are exported.", moot=NO_POD_LABELS, absent=True)
    ] = False
    enable_pod_uid: Annotated[
        bool, About("Whether pods' uids are exported.", moot=NO_POD_LABELS, absent=True)
    ] = msgspec.field(name="enablePodUID", default=False)
    pod_label_allowlist_regex: Annotated[
        tuple[str, ...], About("Which labels are exported.", moot=NO_POD_LABELS)
    ] = ()
    hpc_job_mapping: Annotated[
        HpcJobMapping, About("Which job a GPU works for.", moot=NO_JOB_MAPPING)
    ] = HpcJobMapping()


class Gfd(Agent, frozen=True, kw_only=True):
    """Labels that say what GPUs a node has."""

    enabled: Annotated[
        bool,
        About(
            "Whether nodes get labels of their GPUs.",
            effect="the discovery agent reports GPUs, and discovery writes the labels",
        ),
    ] = True


class Mig(Part, frozen=True, kw_only=True):
    """Slices of GPUs."""

    strategy: Annotated[
        MigStrategy | None,
        About(
            "How slices are offered to pods.",
            effect="names of the device plugin's resources and of the GPUs' labels",
            unset="none",
        ),
    ] = None


class MigManagerConfig(Part, frozen=True, kw_only=True):
    """Which layouts of slices there are."""

    name: Annotated[
        str,
        About(
            "The ConfigMap with layouts.",
            effect="the driver agent reads layouts there",
            unset="layouts that come with Sluice",
        ),
    ] = ""
    default: Annotated[
        str,
        About(
            "The layout of a node that names none.",
            effect="all-disabled: written to nodes without one",
            stored=True,
            words=("all-disabled", ""),
        ),
    ] = "all-disabled"


class GpuClientsConfig(Part, frozen=True, kw_only=True):
    """Services of the host that must let go of GPUs."""

    name: Annotated[str, About("The ConfigMap with their names.")] = ""


class MigManager(Agent, frozen=True, kw_only=True):
    """Changes of the slices on a node, which the driver agent makes."""

    enabled: Annotated[
        bool,
        About(
            "Whether slices are changed as nodes ask for it.",
            effect="the driver agent obeys nvidia.com/mig.config",
        ),
    ] = True
    config: Annotated[MigManagerConfig, About("Layouts.")] = MigManagerConfig()
    gpu_clients_config: Annotated[
        GpuClientsConfig, About("Services of the host.", moot=NO_GPU_CLIENTS)
    ] = GpuClientsConfig()


class Check(Part, frozen=True, kw_only=True):
    """One check of the validator."""

    env: Annotated[
        tuple[EnvVar, ...],
        About("Environment variables.", effect="settings of this check of the validator agent"),
    ] = ()


class Validator(Agent, frozen=True, kw_only=True):
    """The checks that tell whether a node's driver works."""

    plugin: Annotated[Check, About("The check of the device plugin.")] = Check()
    toolkit: Annotated[Check, About("The check of the toolkit.")] = Check()
    driver: Annotated[Check, About("The check of the driver.")] = Check()
    cuda: Annotated[Check, About("The check of CUDA.")] = Check()
    vfio_pci: Annotated[Check, About("The check of VFIO.", moot="VFIO is not built")] = (
        msgspec.field(name="vfioPCI", default=Check())
    )
    vgpu_manager: Annotated[
        Check, About("The check of the vGPU manager.", moot="vGPU is not built")
    ] = Check()
    vgpu_devices: Annotated[
        Check, About("The check of vGPU devices.", moot="vGPU is not built")
    ] = Check()
