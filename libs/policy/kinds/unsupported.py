"""The sections of ClusterPolicy for features that Sluice lacks: accepted, with findings."""

from typing import Annotated

from libs.policy.kinds.common import ContainerSection, Image, Labels
from libs.policy.kinds.driver import DriverManager, KernelModuleConfig
from libs.policy.kinds.service_monitor import ServiceMonitor
from libs.policy.shapes import About, PolicyStruct

ONLY_FOR_VMS = (
    "vfioManager",
    "sandboxDevicePlugin",
    "kataSandboxDevicePlugin",
    "vgpuManager",
    "vgpuDeviceManager",
    "kataManager",
    "ccManager",
)
"""The sections that the GPU Operator too uses only if sandboxWorkloads is enabled."""


class Dcgm(ContainerSection, frozen=True, kw_only=True):
    """The DCGM host engine."""

    enabled: Annotated[bool, About("Whether the host engine runs.", unsupported=True)] = False
    host_port: Annotated[int | None, About("The port on the host.", bits=32)] = None


class UnsupportedSection(ContainerSection, frozen=True, kw_only=True):
    enabled: Annotated[bool, About("Whether it runs.", unsupported=True)] = False


class VfioManager(UnsupportedSection, frozen=True, kw_only=True):
    """Binds GPUs to vfio-pci."""

    driver_manager: Annotated[DriverManager, About("Its driver manager.")] = DriverManager()


class SandboxDevicePlugin(UnsupportedSection, frozen=True, kw_only=True):
    """The device plugin for virtual machines."""


class VgpuManager(UnsupportedSection, frozen=True, kw_only=True):
    """The vGPU host driver."""

    driver_manager: Annotated[DriverManager, About("Its driver manager.")] = DriverManager()
    kernel_module_config: Annotated[
        KernelModuleConfig, About("Parameters of its kernel modules.")
    ] = KernelModuleConfig()


class VgpuDevicesConfig(PolicyStruct, frozen=True, kw_only=True):
    """Layouts of vGPU devices."""

    name: Annotated[str, About("The ConfigMap that holds the layouts.")] = ""
    default: Annotated[str, About("The layout of nodes that do not select one.", stored=True)] = (
        "default"
    )


class VgpuDeviceManager(UnsupportedSection, frozen=True, kw_only=True):
    """Makes vGPU devices."""

    config: Annotated[VgpuDevicesConfig, About("Layouts.")] = VgpuDevicesConfig()


class KataArtifacts(PolicyStruct, frozen=True, kw_only=True):
    """The source of a Kata class's kernel and image."""

    url: Annotated[str, About("The image that holds the artifacts.", required=True)] = ""
    pull_secret: Annotated[str, About("The pull Secret of the registry.")] = ""


class KataClass(PolicyStruct, frozen=True, kw_only=True):
    """A RuntimeClass for Kata."""

    name: Annotated[str, About("The name of the RuntimeClass.", required=True)] = ""
    node_selector: Annotated[Labels, About("The nodes of the RuntimeClass.")] = {}
    artifacts: Annotated[KataArtifacts, About("The artifacts of the class.", required=True)] = (
        KataArtifacts()
    )


class KataConfig(PolicyStruct, frozen=True, kw_only=True):
    """What Kata runs."""

    artifacts_dir: Annotated[
        str, About("The directory of the artifacts on the host.", stored=True)
    ] = "/opt/nvidia-gpu-operator/artifacts/runtimeclasses"
    runtime_classes: Annotated[tuple[KataClass, ...], About("RuntimeClasses.")] = ()


class KataManager(UnsupportedSection, frozen=True, kw_only=True):
    """Installs what Kata needs."""

    config: Annotated[KataConfig, About("What Kata runs.")] = KataConfig()


class CcManager(UnsupportedSection, frozen=True, kw_only=True):
    """Confidential computing."""

    default_mode: Annotated[
        str, About("The mode of nodes that do not select one.", choices=("on", "off", "devtools"))
    ] = ""


NO_VMS = "Sluice does not support GPUs for virtual machines and leaves such nodes alone"
CONTAINERS = "container"
WORKLOADS = (CONTAINERS, "vm-passthrough", "vm-vgpu")
"""What the GPUs of a node can be used for."""


class SandboxWorkloads(PolicyStruct, frozen=True, kw_only=True):
    """GPUs for virtual machines."""

    enabled: Annotated[
        bool,
        About(
            "Whether nodes may run virtual machines.", no_effect_because=NO_VMS, unsupported=True
        ),
    ] = False
    default_workload: Annotated[
        str,
        About(
            "The workload of nodes without the label nvidia.com/gpu.workload.config.",
            effect="if enabled is true, nodes that do not run containers are in no pool",
            stored=True,
            choices=WORKLOADS,
        ),
    ] = CONTAINERS
    mode: Annotated[
        str,
        About(
            "The kind of virtual machines.",
            no_effect_because=NO_VMS,
            stored=True,
            choices=("kubevirt", "kata"),
        ),
    ] = "kubevirt"


class Psp(PolicyStruct, frozen=True, kw_only=True):
    """Pod security policies, which Kubernetes no longer has."""

    enabled: Annotated[
        bool, About("Whether the policies are created.", unsupported=True, deprecated="use psa")
    ] = False


class InitContainer(Image, frozen=True, kw_only=True):
    """The init container of old operands."""


class OperatorMetrics(PolicyStruct, frozen=True, kw_only=True):
    """Metrics of the operator."""

    service_monitor: Annotated[ServiceMonitor, About("The ServiceMonitor for Prometheus.")] = (
        ServiceMonitor()
    )
