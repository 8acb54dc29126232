"""What a node is and has, as its components see it. Each fills in the sections that it sees."""

import msgspec

from libs.contracts.message import Data


class PciDevice(Data, frozen=True, kw_only=True):
    """One device, as the kernel's PCI tree shows it: hexadecimal, without 0x."""

    address: str
    vendor: str
    device: str
    device_class: str = msgspec.field(name="class")
    subsystem_vendor: str = ""
    subsystem_device: str = ""
    driver: str = ""
    numa_node: int = -1
    sriov_total_vfs: int = 0
    iommu_group: str = ""


class Kernel(Data, frozen=True, kw_only=True):
    """The running kernel."""

    release: str
    selinux: bool = False
    secure_boot: bool = False
    config: dict[str, str] = {}
    modules: tuple[str, ...] = ()
    """Of the loaded modules, those that anybody here asks about."""


class OperatingSystem(Data, frozen=True, kw_only=True):
    """From os-release."""

    id: str
    version_id: str = ""
    name: str = ""
    ostree_version: str = ""


class Cpu(Data, frozen=True, kw_only=True):
    """The processors."""

    architecture: str
    vendor: str = ""
    family: int = 0
    model: int = 0
    count: int = 0
    multithreading: bool = False
    flags: tuple[str, ...] = ()


class Memory(Data, frozen=True, kw_only=True):
    """Memory of the machine."""

    bytes: int
    numa_nodes: int = 1
    swap: bool = False


class Mig(Data, frozen=True, kw_only=True):
    """One MIG device of a GPU."""

    uuid: str
    profile: str
    gpu_instance: int = 0
    compute_instance: int = 0
    memory_mib: int = 0


class Gpu(Data, frozen=True, kw_only=True):
    """One GPU, as NVML describes it."""

    uuid: str
    index: int
    minor: int
    pci: str
    name: str
    memory_mib: int
    compute_capability: tuple[int, int] = (0, 0)
    mig_capable: bool = False
    mig_mode: bool = False
    migs: tuple[Mig, ...] = ()
    fabric: str = ""
    """`<cluster uuid>.<clique id>` once the fabric manager is done."""
    hung: bool = False


class LoadedDriver(Data, frozen=True, kw_only=True):
    """The driver that is in the kernel now."""

    version: str
    loaded_at: float = 0.0
    cuda: str = ""
    modules: tuple[str, ...] = ()
    open_kernel_modules: bool = False
    preinstalled: bool = False


class Gate(Data, frozen=True, kw_only=True):
    """Where the driver pod's gate stands, as its keeper sees it."""

    admitted_pod_uid: str = ""
    admitted_label: str = ""
    waiting_pod_uid: str = ""
    waiting_label: str = ""
    why: str = ""


class Facts(Data, frozen=True, kw_only=True):
    """What a node is and has. A section that the component does not see is absent, not empty."""

    pci: tuple[PciDevice, ...] | None = None
    kernel: Kernel | None = None
    os: OperatingSystem | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    machine: str | None = None
    runtime: str | None = None
    """The container runtime and its version."""
    gpus: tuple[Gpu, ...] | None = None
    driver: LoadedDriver | None = None
    gate: Gate | None = None
    nvml_error: str = ""
