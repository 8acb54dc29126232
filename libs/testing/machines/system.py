"""What a simulated machine consists of: operating system and GPUs. Pure."""

import hashlib

import msgspec

from libs.contracts.facts import Gpu
from libs.testing.cluster.kubelet.hardware import KERNEL

MOST_GPUS = 16


class GpuModel(msgspec.Struct, frozen=True, kw_only=True):
    """A product; all GPUs of a machine are the same."""

    name: str
    device: str
    subsystem: str
    """PCI ids, hexadecimal without 0x."""
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
    """A machine without its name and number of GPUs."""

    gpu: GpuModel = H100
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


def gpus(name: str, count: int, model: GpuModel) -> tuple[Gpu, ...]:
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
            mig_capable=model.mig_capable,
        )
        for index in range(count)
    )


def _uuid(seed: str) -> str:
    text = hashlib.blake2b(seed.encode(), digest_size=16).hexdigest()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
