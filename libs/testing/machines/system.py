"""What a simulated machine is made of: its system, its GPUs, and where they sit. Pure."""

import hashlib

import msgspec

from libs.contracts.facts import Gpu
from libs.testing.cluster.kubelet.hardware import KERNEL

MOST_GPUS = 16


class GpuModel(msgspec.Struct, frozen=True, kw_only=True):
    """One product: all GPUs of a machine are alike."""

    name: str
    device: str
    subsystem: str
    """Both as the PCI bus has them: hexadecimal, without 0x."""
    memory_mib: int
    compute_capability: tuple[int, int]
    mig_capable: bool = True


H100 = GpuModel(
    name="NVIDIA H100 80GB HBM3",
    device="2330",
    subsystem="16c1",
    memory_mib=81559,
    compute_capability=(9, 0),
)


class System(msgspec.Struct, frozen=True, kw_only=True):
    """A machine without its name and its number of GPUs."""

    gpu: GpuModel = H100
    product: str = "DGXH100"
    """The model of the whole machine."""
    kernel: str = KERNEL
    """The release that it boots, unless it is told another."""
    os_id: str = "ubuntu"
    os_version: str = "22.04"
    os_name: str = "Ubuntu 22.04.5 LTS"
    architecture: str = "x86_64"
    cpus: int = 8
    memory_gib: int = 2015
    free_gib: int = 1000
    """What may still be written to its disk."""
    secure_boot: bool = False
    selinux: bool = False
    nouveau: bool = False
    """The kernel's own driver sits on the GPUs from each boot on."""
    driver: str = ""
    """The version of a driver that is the machine's own, and loaded at each boot."""


PLAIN = System()
"""Nothing about it matters."""


def gpus(name: str, count: int, model: GpuModel) -> tuple[Gpu, ...]:
    """The GPUs of the machine with this name, the same ones each time."""
    if not 0 <= count <= MOST_GPUS:
        raise ValueError(
            f"a machine {name} with {count} GPUs was asked for: it can have 0 to {MOST_GPUS}"
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
            mig_capable=model.mig_capable,
        )
        for index in range(count)
    )


def _uuid(of: str) -> str:
    text = hashlib.blake2b(of.encode(), digest_size=16).hexdigest()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
