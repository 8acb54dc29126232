"""Five machines of which every label is written down: their files, and how their GPUs are divided.

The GPUs are those of the stand-in for NVIDIA's library.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from libs.host import local_features, pci
from libs.testing.nvml import profiles
from libs.testing.nvml.profiles import Profile
from tests.builders.machine_files import pci_config, put, vgpu_capability

INTEL: Final = (
    "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
    "flags\t\t: fpu cx8 sep sse sse2 fxsr aes avx avx2 fma avx512f avx512_vnni amx_tile vmx xsave\n"
)
AMD: Final = (
    "vendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel\t\t: 49\n"
    "flags\t\t: fpu cx8 sep sse sse2 fxsr aes avx avx2 fma svm topoext sev sha_ni clzero ibs\n"
)
GUEST: Final = (
    "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n"
    "flags\t\t: fpu cx8 sse sse2 fxsr aes avx avx2 fma avx512f hypervisor\n"
)
GRACE: Final = (
    "BogoMIPS\t: 2000.00\n"
    "Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics sve sve2 i8mm bf16 bti paca\n"
    "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\n"
    "CPU revision\t: 0\n"
)
MELLANOX: Final = ("0x020700", "0x15b3", "0x1021", 16)
INTEL_NIC: Final = ("0x020000", "0x8086", "0x1593", 128)
VIRTIO_NIC: Final = ("0x020000", "0x1af4", "0x1041", 0)
NVSWITCH: Final = ("0x068000", "0x10de", "0x22a3", 0)


class LabelMachine(msgspec.Struct, frozen=True, kw_only=True):
    profile: Profile
    about: str
    product: str
    cpu: str
    architecture: str = "x86_64"
    kernel: str
    config: str = "CONFIG_NO_HZ=y\nCONFIG_NO_HZ_IDLE=y\n"
    os: str
    modules: tuple[str, ...] = ("nvidia", "nvidia_uvm")
    devices: tuple[tuple[str, str, str, int], ...] = ()
    """Class, vendor, device and number of virtual functions of each other device."""
    threads: int = 2
    """Of a core."""
    numa_nodes: int = 2
    swap: bool = False
    selinux: bool = False
    gpu_config: bytes = pci_config((0x01, b""))
    features: str = ""
    """A feature file of NFD."""
    small: str = ""
    """The profile of which each GPU gets seven in the strategy `single`."""
    mixed: tuple[str, ...] = ()
    """The profiles of all GPUs but the first in the strategy `mixed`."""

    def geometry(self, strategy: str) -> tuple[tuple[str, ...], ...]:
        """Return the profiles of the MIG devices of each GPU."""
        count = len(self.profile.addresses)
        if strategy == "single":
            return ((self.small,) * 7,) * count if self.small else ((),) * count
        if strategy == "mixed":
            return ((), *(self.mixed,) * (count - 1))
        return ((),) * count


MACHINES: Final[Mapping[str, LabelMachine]] = {
    "H100-80GB": LabelMachine(
        profile=profiles.H100_80GB,
        about="eight H100 80GB with NVSwitch, InfiniBand, Ubuntu 22.04",
        product="DGXH100",
        cpu=INTEL,
        kernel="5.15.0-1060-nvidia",
        os='ID=ubuntu\nVERSION_ID="22.04"\n',
        modules=("nvidia", "nvidia_uvm", "nvidia_peermem", "mlx5_core", "ib_uverbs", "rdma_ucm"),
        devices=(*[MELLANOX] * 8, *[NVSWITCH] * 4),
        small="1g.10gb",
        mixed=("3g.40gb", "2g.20gb", "1g.10gb+me"),
    ),
    "A100-40GB": LabelMachine(
        profile=profiles.A100_40GB,
        about="eight A100 40GB, OpenShift on RHEL CoreOS with SELinux",
        product="DGXA100 920-23687-2530-000",
        cpu=AMD,
        kernel="5.14.0-427.33.1.el9_4.x86_64",
        config="CONFIG_NO_HZ=y\nCONFIG_NO_HZ_FULL=y\nCONFIG_PREEMPT=y\n",
        os='ID="rhcos"\nVERSION_ID="4.16"\nOSTREE_VERSION="416.94.202408132101-0"\n',
        devices=(MELLANOX,),
        selinux=True,
        numa_nodes=8,
        small="1g.5gb",
        mixed=("3g.20gb", "2g.10gb", "1g.5gb+me"),
    ),
    "T4": LabelMachine(
        profile=profiles.T4,
        about="a virtual machine with one T4 as a virtual GPU, Ubuntu 24.04",
        product="Standard PC (Q35 + ICH9, 2009)",
        cpu=GUEST,
        kernel="6.8.0-48-generic",
        os='ID=ubuntu\nVERSION_ID="24.04"\n',
        devices=(VIRTIO_NIC,),
        threads=1,
        numa_nodes=1,
        swap=True,
        gpu_config=pci_config((0x09, vgpu_capability("580.95.02", "r580_00"))),
    ),
    "L40S": LabelMachine(
        profile=profiles.L40S,
        about="four L40S, RHEL 9.4, with a feature file of NFD",
        product="PowerEdge R760xa",
        cpu=INTEL,
        kernel="5.14.0-427.13.1.el9_4.x86_64",
        os='ID="rhel"\nVERSION_ID="9.4"\n',
        devices=(INTEL_NIC,),
        features="rack=b12\ncooling=liquid\n",
    ),
    "GB200": LabelMachine(
        profile=profiles.GB200,
        about="four GB200 in an NVLink fabric of several machines, Arm, Ubuntu 24.04",
        product="GB200 NVL",
        cpu=GRACE,
        architecture="aarch64",
        kernel="6.8.0-1021-nvidia-64k",
        os='ID=ubuntu\nVERSION_ID="24.04"\n',
        modules=("nvidia", "nvidia_uvm", "mlx5_core", "ib_uverbs", "rdma_ucm"),
        devices=(*[MELLANOX] * 4,),
        threads=1,
        numa_nodes=34,
        small="1g.23gb",
        mixed=("3g.93gb", "2g.47gb", "1g.23gb+me"),
    ),
}


def write_files(root: Path, machine: LabelMachine) -> None:
    """Write the files that the discovery agent reads."""
    loaded = "".join(f"{name} 1 0 - Live 0x0\n" for name in machine.modules)
    release = machine.kernel
    for path, text in {
        "/proc/modules": loaded,
        "/proc/sys/kernel/osrelease": f"{release}\n",
        "/proc/sys/kernel/arch": f"{machine.architecture}\n",
        "/proc/cpuinfo": f"processor\t: 0\n{machine.cpu}\nprocessor\t: 1\n{machine.cpu}\n",
        "/proc/meminfo": "MemTotal:       2113407800 kB\n",
        "/proc/swaps": "Filename Type\n" + "/swapfile file\n" * machine.swap,
        f"/boot/config-{release}": machine.config,
        "/etc/os-release": machine.os,
        "/sys/class/dmi/id/product_name": f"{machine.product}\n",
        "/sys/fs/selinux/enforce": "1" if machine.selinux else "0",
    }.items():
        put(root, path, text)
    if machine.features:
        put(root, f"{local_features.FOLDER}/site", machine.features)
    for number in range(2):
        siblings = "0-1\n" if machine.threads == 2 else f"{number}\n"
        folder = f"/sys/devices/system/cpu/cpu{number}/topology"
        put(root, f"{folder}/thread_siblings_list", siblings)
    for number in range(machine.numa_nodes):
        put(root, f"/sys/devices/system/node/node{number}/cpulist", "0\n")
    _devices(root, machine)


def _devices(root: Path, machine: LabelMachine) -> None:
    product = machine.profile.product
    for domain, bus in machine.profile.addresses:
        folder = f"{pci.DEVICES}/{domain:04x}:{bus:02x}:00.0"
        device = f"0x{product.pci_device_id >> 16:04x}"
        _device(root, folder, ("0x030200", "0x10de", device, 0))
        put(root, f"{folder}/config", machine.gpu_config.decode("ascii"))
    for number, other in enumerate(machine.devices):
        _device(root, f"{pci.DEVICES}/0040:{number:02x}:00.0", other)


def _device(root: Path, folder: str, device: tuple[str, str, str, int]) -> None:
    kind, vendor, number, functions = device
    for name, text in {
        "class": kind,
        "vendor": vendor,
        "device": number,
        "subsystem_vendor": vendor,
        "subsystem_device": "0x0001",
        "numa_node": "0",
    }.items():
        put(root, f"{folder}/{name}", f"{text}\n")
    if vendor == "0x10de":
        put(root, f"{folder}/config", pci_config().decode("ascii"))
    if functions:
        put(root, f"{folder}/sriov_totalvfs", f"{functions}\n")
