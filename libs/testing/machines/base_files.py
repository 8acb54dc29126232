"""The files of a simulated machine: operating system and GPUs. Pure."""

import hashlib
from collections.abc import Sequence

import msgspec

from libs.contracts.facts import Gpu
from libs.host import pci
from libs.host.diagnosing import SHARED_MEMORY
from libs.host.system import ARCHITECTURE
from libs.testing.cluster.kubelet.hardware import KERNEL
from libs.testing.machines.host_tree import HostTree
from libs.testing.nvml.products import H100, Product

MOST_GPUS = 16


class System(msgspec.Struct, frozen=True, kw_only=True):
    """A machine without its name and number of GPUs."""

    gpu: Product = H100
    product: str = "DGXH100"
    kernel: str = KERNEL
    """The release of the first boot."""
    os_id: str = "ubuntu"
    os_version: str = "22.04"
    os_name: str = "Ubuntu 22.04.5 LTS"
    architecture: str = "x86_64"
    cpus: int = 8
    memory_gib: int = 2015
    free_gib: int = 1000
    """Free space on the disk."""
    nouveau: bool = False
    """Load nouveau at each boot."""
    driver: str = ""
    """The version of a driver that the machine itself loads at each boot."""


PLAIN = System()


def gpus(name: str, count: int, model: Product) -> tuple[Gpu, ...]:
    """Return the machine's GPUs, the same for the same name."""
    if not 0 <= count <= MOST_GPUS:
        raise ValueError(
            f"machine {name} cannot have {count} GPUs: between 0 and {MOST_GPUS} are possible"
        )
    return tuple(
        Gpu(
            uuid=_uuid(f"{name}/{index}"),
            index=index,
            minor=index,
            pci=f"0000:{0x19 + 0x0D * index:02x}:00.0",
            name=model.name,
            memory_mib=model.memory_mib,
            compute_capability=model.compute_capability,
            mig_capable=bool(model.mig),
        )
        for index in range(count)
    )


def _uuid(seed: str) -> str:
    text = hashlib.blake2b(seed.encode(), digest_size=16).hexdigest()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


VOLATILE = ("/dev", "/proc", "/run", "/sys")
"""Folders in memory: emptied by each boot, or created by the kernel."""

NIC = "0000:05:00.0"
NIC_DRIVER = "mlx5_core"
_NIC = ("0x020000", "0x15b3", "0x1021", "0x15b3", "0x0040")
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_PCI_FILES = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")
_FLAGS = "fpu sse sse2 ssse3 sse4_1 sse4_2 avx avx2 avx512f amx_tile"


def create_base_files(
    host_tree: HostTree, *, name: str, system: System, gpus: Sequence[Gpu]
) -> None:
    """Write the files of a machine that has not booted yet."""
    for path in VOLATILE:
        host_tree.empty(path)
    for folder in ("/etc", "/var/lib", "/var/log", "/usr/src", "/lib/modules"):
        host_tree.make_folder(folder)
    host_tree.link("/var/run", "../run")
    if system.driver:
        put_libraries(host_tree, "", system.driver)
    host_tree.put("/etc/hostname", f"{name}\n")
    host_tree.put("/etc/os-release", _os_release(system))
    host_tree.put("/dev/null")
    host_tree.make_folder(SHARED_MEMORY)
    host_tree.put("/sys/class/dmi/id/product_name", f"{system.product}\n")
    host_tree.put(_SECURE_BOOT, bytes((6, 0, 0, 0, 0)))
    _processors(host_tree, system)
    _memory(host_tree, system)
    _devices(host_tree, system, gpus)


def put_libraries(host_tree: HostTree, root: str, version: str) -> None:
    """Install the libraries of a driver below a root."""
    folder = f"{root}/usr/lib/x86_64-linux-gnu"
    for library in ("libcuda.so", "libnvidia-ml.so"):
        host_tree.put(f"{folder}/{library}.{version}", "a library\n")
        host_tree.link(f"{folder}/{library}.1", f"{library}.{version}")


def install_kernel(host_tree: HostTree, release: str) -> None:
    """Install a kernel release, with what a driver build needs."""
    host_tree.put(
        f"/boot/config-{release}",
        "CONFIG_NO_HZ=y\nCONFIG_NO_HZ_FULL=y\n# CONFIG_PREEMPT is not set\nCONFIG_HZ=250\n",
    )
    host_tree.make_folder(f"/usr/src/linux-headers-{release}")
    host_tree.make_folder(f"/lib/modules/{release}")
    if not host_tree.at(f"/lib/modules/{release}/build").is_symlink():
        host_tree.link(f"/lib/modules/{release}/build", f"/usr/src/linux-headers-{release}")


def _os_release(system: System) -> str:
    return f'PRETTY_NAME="{system.os_name}"\nID={system.os_id}\nVERSION_ID="{system.os_version}"\n'


def _processors(host_tree: HostTree, system: System) -> None:
    cpu = f"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nflags\t\t: {_FLAGS}\n\n"
    numbers = range(system.cpus)
    host_tree.put(ARCHITECTURE, f"{system.architecture}\n")
    host_tree.put("/proc/cpuinfo", "".join(f"processor\t: {each}\n{cpu}" for each in numbers))
    cores = system.cpus // 2
    for number in numbers:
        first = number % cores if cores else number
        siblings = f"{first},{first + cores}\n" if cores else f"{first}\n"
        host_tree.put(
            f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list", siblings
        )


def _memory(host_tree: HostTree, system: System) -> None:
    kib = system.memory_gib * 1024 * 1024
    host_tree.put("/proc/meminfo", f"MemTotal:       {kib} kB\nMemFree:        {kib // 2} kB\n")
    host_tree.put("/proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n")
    for node in (0, 1):
        host_tree.make_folder(f"/sys/devices/system/node/node{node}")


def _devices(host_tree: HostTree, system: System, gpus: Sequence[Gpu]) -> None:
    model = system.gpu
    identity = ("0x030200", f"0x{pci.NVIDIA}", f"0x{model.device}", f"0x{pci.NVIDIA}")
    for gpu in gpus:
        values = (*identity, f"0x{model.subsystem}")
        _pci_device(
            host_tree, gpu.pci, values, numa=2 * gpu.index // max(1, len(gpus)), group=gpu.index
        )
    _pci_device(host_tree, NIC, _NIC, numa=0, group=len(gpus))
    host_tree.link(f"{pci.DEVICES}/{NIC}/driver", f"../../../../bus/pci/drivers/{NIC_DRIVER}")


def _pci_device(
    host_tree: HostTree, address: str, values: tuple[str, ...], *, numa: int, group: int
) -> None:
    folder = f"{pci.DEVICES}/{address}"
    for name, value in zip(_PCI_FILES, values, strict=True):
        host_tree.put(f"{folder}/{name}", f"{value}\n")
    host_tree.put(f"{folder}/numa_node", f"{numa}\n")
    host_tree.link(f"{folder}/iommu_group", f"../../../../kernel/iommu_groups/{group}")
