"""Driver fields that ClusterPolicy and NVIDIADriver share."""

from enum import StrEnum
from typing import Annotated

import msgspec

from libs.policy.kinds.common import IMAGE_PATTERN, ContainerSection, EnvVar, Probe
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.shapes import About, PolicyStruct

NO_VGPU = "Sluice does not support vGPU"
NO_MANAGER = "the vendor's driver manager does not run: the driver agent performs its steps"


InstallsDriver = Annotated[
    bool,
    About(
        "Whether the driver is installed.",
        effect="false: drivers count as pre-installed; they are validated and never changed",
    ),
]


class KernelModuleType(StrEnum):
    """Which of the vendor's kernel modules are loaded."""

    AUTO = "auto"
    OPEN = "open"
    PROPRIETARY = "proprietary"


class DriverManager(PolicyStruct, frozen=True, kw_only=True):
    """The GPU Operator's init container that removes the old driver."""

    repository: Annotated[
        str, About("Registry and path of its image.", no_effect_because=NO_MANAGER)
    ] = ""
    image: Annotated[
        str,
        About("Its image's name.", no_effect_because=NO_MANAGER, pattern=IMAGE_PATTERN),
    ] = ""
    version: Annotated[str, About("Its image's tag or digest.", no_effect_because=NO_MANAGER)] = ""
    image_pull_policy: Annotated[
        str, About("When the kubelet pulls its image.", no_effect_because=NO_MANAGER)
    ] = ""
    image_pull_secrets: Annotated[
        tuple[str, ...],
        About("Names of the pull Secrets of the registry.", no_effect_because=NO_MANAGER),
    ] = ()
    env: Annotated[
        tuple[EnvVar, ...],
        About(
            "Its environment variables.",
            effect="where autoUpgrade is off, they say how pods leave a node whose driver pod was"
            " deleted, by the table of the driver manager's variables; the condition Accepted names"
            " those without effect",
        ),
    ] = ()


class Rdma(PolicyStruct, frozen=True, kw_only=True):
    """GPUDirect RDMA: network cards access GPU memory."""

    enabled: Annotated[
        bool,
        About("Whether nvidia-peermem is loaded.", effect="adds nvidia-peermem-ctr to the pod"),
    ] = False
    use_host_mofed: Annotated[
        bool,
        About(
            "Whether the network driver is the one installed on the host.",
            effect="mounts the host's network driver into the containers",
        ),
    ] = False


class Gds(ContainerSection, frozen=True, kw_only=True):
    """GPUDirect Storage: disks access GPU memory."""

    enabled: Annotated[
        bool,
        About(
            "Whether nvidia-fs is loaded.",
            effect="adds nvidia-fs-ctr to the pod; containers with GPUs get nvidia.com/gds=all and"
            " nvidia.com/mofed=all by CDI, where the node has their device files",
        ),
    ] = False


class Gdrcopy(ContainerSection, frozen=True, kw_only=True):
    """Copies between GPU memory and the CPU by the GDRCopy kernel module."""

    enabled: Annotated[
        bool,
        About(
            "Whether gdrdrv is loaded.",
            effect="adds nvidia-gdrcopy-ctr to the pod; containers with GPUs get"
            " nvidia.com/gdrcopy=all by CDI, where the node has its device file",
        ),
    ] = False


class RepoConfig(PolicyStruct, frozen=True, kw_only=True):
    """Package repositories that the driver container uses."""

    config_map_name: Annotated[
        str,
        About("The ConfigMap with repository files.", effect="mounted into the driver container"),
    ] = ""


class CertConfig(PolicyStruct, frozen=True, kw_only=True):
    """Certificates for those repositories."""

    name: Annotated[
        str, About("The ConfigMap with certificates.", effect="mounted into the driver container")
    ] = ""


class KernelModuleConfig(PolicyStruct, frozen=True, kw_only=True):
    """Parameters of the kernel modules."""

    name: Annotated[
        str,
        About(
            "The ConfigMap with module parameters, one file per module.",
            effect="mounted into the driver container",
        ),
    ] = ""


class VirtualTopology(PolicyStruct, frozen=True, kw_only=True):
    """The topology of GPUs inside a virtual machine."""

    config: Annotated[str, About("The ConfigMap with the topology.")] = ""


class Licensing(PolicyStruct, frozen=True, kw_only=True):
    """The licence of a vGPU guest driver."""

    config_map_name: Annotated[
        str, About("The ConfigMap with the licence.", deprecated="use secretName")
    ] = ""
    secret_name: Annotated[str, About("The Secret with the licence.")] = ""
    nls_enabled: Annotated[
        bool, About("Whether the licence comes from the NVIDIA License System (NLS).")
    ] = False


class DriverBase(ContainerSection, frozen=True, kw_only=True):
    """Fields of the driver container that have the same name in both kinds."""

    use_precompiled: Annotated[
        bool,
        About(
            "Whether the driver uses precompiled kernel modules, with one image per kernel.",
            effect="the image's tag contains the kernel: one driver DaemonSet per kernel",
        ),
    ] = False
    kernel_module_type: Annotated[
        KernelModuleType,
        About(
            "Which kernel modules are used.",
            effect="sets KERNEL_MODULE_TYPE of the container; with auto the container chooses",
            stored=True,
        ),
    ] = KernelModuleType.AUTO
    use_open_kernel_modules: Annotated[
        bool,
        About(
            "Whether open kernel modules are used.",
            no_effect_because="kernelModuleType replaced it",
            deprecated="use kernelModuleType",
        ),
    ] = False
    startup_probe: Annotated[Probe | None, About("When the driver counts as started.")] = None
    liveness_probe: Annotated[Probe | None, About("When the driver is restarted.")] = None
    readiness_probe: Annotated[Probe | None, About("When the driver counts as ready.")] = None
    rdma: Annotated[Rdma, About("GPUDirect RDMA.")] = Rdma()
    manager: Annotated[DriverManager, About("The vendor's driver manager.")] = DriverManager()
    secret_env: Annotated[
        str,
        About(
            "The Secret whose entries become environment variables.",
            effect="set as envFrom of the driver container",
        ),
    ] = ""
    cert_config: Annotated[CertConfig, About("Certificates for repositories.")] = CertConfig()
    kernel_module_config: Annotated[
        KernelModuleConfig, About("Parameters of the kernel modules.")
    ] = KernelModuleConfig()


class DriverSection(DriverBase, frozen=True, kw_only=True):
    """`spec.driver` of a ClusterPolicy: one driver for every GPU node."""

    enabled: InstallsDriver = True
    use_nvidia_driver_crd: Annotated[
        bool,
        About(
            "Whether NVIDIADriver objects determine which driver a node has.",
            effect="true: this section is not used, and nodes belong to NVIDIADrivers",
        ),
    ] = msgspec.field(name="useNvidiaDriverCRD", default=False)
    upgrade_policy: Annotated[UpgradePolicy, About("How nodes are upgraded.")] = UpgradePolicy()
    repo_config: Annotated[RepoConfig, About("Package repositories.")] = RepoConfig()
    licensing_config: Annotated[
        Licensing, About("The licence of a vGPU guest.", no_effect_because=NO_VGPU)
    ] = Licensing()
    virtual_topology: Annotated[
        VirtualTopology, About("The topology in a virtual machine.", no_effect_because=NO_VGPU)
    ] = VirtualTopology()
