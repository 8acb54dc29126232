"""Facts about a node. Each component reports the sections that it can observe."""

import msgspec

from libs.contracts.diagnoses import Diagnosis
from libs.contracts.gpus import FabricState, GpuIdentity, GpuProblem, RecoveryAction
from libs.contracts.message import Data
from libs.contracts.numbers import Count, Integer


class PciDevice(Data, frozen=True, kw_only=True):
    """A PCI device as in sysfs; numbers are hexadecimal without 0x."""

    address: str
    vendor: str
    device: str
    device_class: str = msgspec.field(name="class")
    subsystem_vendor: str = ""
    subsystem_device: str = ""
    driver: str = ""
    numa_node: Integer = -1
    sriov_total_vfs: Count = 0
    iommu_group: str = ""


class Kernel(Data, frozen=True, kw_only=True):
    """The running kernel."""

    release: str
    selinux: bool = False
    secure_boot: bool = False
    config: dict[str, str] = {}
    modules: tuple[str, ...] = ()
    """The loaded modules that Sluice uses."""


class NextKernel(Data, frozen=True, kw_only=True):
    """The kernel that the machine boots next, as far as its files say."""

    release: str = ""
    """Empty: the running one, or it is not known."""
    by_boot_entry: bool = False
    """Whether the default boot entry names it; otherwise it is the newest installed one."""
    reboot_required: bool = False
    """Whether the system asks for a reboot (`/run/reboot-required`)."""
    without_headers: bool = False
    """Whether the machine has the headers of the running kernel, and not of this one."""
    without_driver: bool = False
    """Whether the driver is installed on the machine for the running kernel, and not for this one.
    """


class OperatingSystem(Data, frozen=True, kw_only=True):
    """The operating system, from os-release."""

    id: str
    version_id: str = ""
    name: str = ""
    ostree_version: str = ""


class Cpu(Data, frozen=True, kw_only=True):
    """The processors."""

    architecture: str
    vendor: str = ""
    family: Count = 0
    model: Count = 0
    count: Count = 0
    multithreading: bool = False
    flags: tuple[str, ...] = ()


class Memory(Data, frozen=True, kw_only=True):
    """The memory of the machine."""

    bytes: Count
    numa_nodes: Count = 1
    swap: bool = False


class Vgpu(Data, frozen=True, kw_only=True):
    """Whether the machine is a guest with virtual GPUs, and the driver of its host."""

    present: bool = False
    host_driver_version: str = ""
    host_driver_branch: str = ""


class LocalFeatures(Data, frozen=True, kw_only=True):
    """Labels that the machine's administrators describe in the feature files of NFD."""

    labels: dict[str, str] = {}
    """By whole key."""
    refused: Count = 0
    """Number of lines and files that were left out."""
    why: str = ""
    """Why the first of them was left out."""


class Mig(Data, frozen=True, kw_only=True):
    """One MIG device of a GPU."""

    uuid: str
    profile: str
    gpu_instance: Count = 0
    compute_instance: Count = 0
    memory_mib: Count = 0
    multiprocessors: Count = 0
    gpu_slices: Count = 0
    compute_slices: Count = 0
    copy_engines: Count = 0
    decoders: Count = 0
    encoders: Count = 0
    jpeg_engines: Count = 0
    ofa_engines: Count = 0
    number: Count | None = None
    """NVML's number of the device on its GPU: there may be gaps."""


class Gpu(Data, frozen=True, kw_only=True):
    """One GPU, as NVML describes it. A GPU that fails is described by what was known of it."""

    uuid: str
    """Empty if it was never known."""
    index: Count
    minor: Integer
    pci: str
    name: str
    memory_mib: Count
    compute_capability: tuple[Count, Count] = (0, 0)
    mig_capable: bool = False
    mig_mode: bool = False
    migs: tuple[Mig, ...] = ()
    fabric: str = ""
    """`<cluster uuid>.<clique id>` once the fabric manager has finished."""
    hung: bool = False
    problem: GpuProblem | None = None
    """Why the GPU cannot be used; None if it can."""
    serial: str = ""
    mig_pending: bool | None = None
    """The MIG mode after the next reset of the GPU; None if the GPU has no MIG."""
    fabric_state: FabricState | None = None
    nvlinks: Count = 0
    """The number of NVLinks of the GPU."""
    nvlinks_down: tuple[Count, ...] = ()
    """The numbers of the NVLinks that are not active."""
    recovery: RecoveryAction | None = None
    """None if the driver does not say."""

    @property
    def identity(self) -> GpuIdentity:
        return GpuIdentity(uuid=self.uuid, pci=self.pci)

    @property
    def trouble(self) -> GpuProblem | None:
        """Why the GPU cannot be used; None if it can. An older agent only says that it hangs."""
        return self.problem or (GpuProblem.HUNG if self.hung else None)

    @property
    def named_migs(self) -> tuple[tuple[str, Mig], ...]:
        """The MIG devices with their names, `<gpu>:<number>`, as NVIDIA's programs have them."""
        numbers = (
            place if mig.number is None else mig.number for place, mig in enumerate(self.migs)
        )
        return tuple(
            (f"{self.index}:{number}", mig) for number, mig in zip(numbers, self.migs, strict=True)
        )


class MigKind(Data, frozen=True, kw_only=True):
    """A kind of GPU instance that a GPU can have."""

    name: str
    """The profile, such as `3g.40gb`."""
    most: Count
    """How many of it a GPU has at most."""
    size: Count
    """In slices of memory."""
    starts: tuple[Count, ...]
    """The slices of memory at which it may begin."""


class MigBoard(Data, frozen=True, kw_only=True):
    """GPUs that can be divided alike."""

    gpus: tuple[Count, ...]
    """Their indices."""
    kinds: tuple[MigKind, ...]


class LoadedDriver(Data, frozen=True, kw_only=True):
    """The driver that is loaded into the kernel."""

    version: str
    loaded_at: float = 0.0
    cuda: str = ""
    modules: tuple[str, ...] = ()
    open_kernel_modules: bool = False
    preinstalled: bool = False


class Gate(Data, frozen=True, kw_only=True):
    """The state of the driver pod's gate, reported by the driver agent."""

    admitted_pod_uid: str = ""
    admitted_label: str = ""
    waiting_pod_uid: str = ""
    waiting_label: str = ""
    why: str = ""


class Cdi(Data, frozen=True, kw_only=True):
    """What the machine's CDI specs give to containers, reported by the driver agent."""

    devices: tuple[str, ...] = ()
    """The UUIDs of the GPUs and MIG devices that a container can have."""
    why: str = ""
    """Why there are none or fewer than the machine has, for people."""
    digest: str = ""
    """Of what every container gets that has a GPU; empty while none can have one."""


class ContainerRuntime(Data, frozen=True, kw_only=True):
    """What the machine's container runtime knows, reported by the driver agent."""

    name: str = ""
    """`containerd` or `cri-o`; empty while it does not answer."""
    handlers: tuple[str, ...] = ()
    """Those of the wanted handlers of RuntimeClasses that it knows."""
    cdi: bool = False
    """Whether it gives containers the devices of CDI specs."""
    why: str = ""
    """Why it is not configured as wanted, or what it waits for, for people."""


class Facts(Data, frozen=True, kw_only=True):
    """Facts about a node. Sections that a component cannot observe are absent, not empty."""

    pci: tuple[PciDevice, ...] | None = None
    kernel: Kernel | None = None
    os: OperatingSystem | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    machine: str | None = None
    runtime: str | None = None
    """The container runtime and its version."""
    gpus: tuple[Gpu, ...] | None = None
    mig_boards: tuple[MigBoard, ...] | None = None
    """How the GPUs could be divided, as their driver says; some drivers say so only while MIG is
    on."""
    driver: LoadedDriver | None = None
    gate: Gate | None = None
    nvml_error: str = ""
    """Why NVML cannot be used, for people; empty if it can."""
    nvml_problem: GpuProblem | None = None
    vgpu: Vgpu | None = None
    features: LocalFeatures | None = None
    cdi: Cdi | None = None
    """None while it is not known, and where specs are switched off."""
    obstacle: Diagnosis | None = None
    """Why no driver is loaded, as far as is known."""
    container_runtime: ContainerRuntime | None = None
    next_kernel: NextKernel | None = None
