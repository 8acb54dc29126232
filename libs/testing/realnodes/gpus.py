"""GPUs of a real node: as its PCI bus, its kernel and NVIDIA's library show them.

The kernel is the machine's own: what it lists in `/proc/modules` has no driver.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from libs.testing.nvml import NAME, VARIABLE, StandIn, library
from libs.testing.nvml.profiles import Profile
from libs.testing.nvml.stand_in import DRIVER
from libs.testing.realnodes.node import MACHINE, Node

HOST: Final = "/host"
"""Where agents mount the root of their node."""
ENVIRONMENT: Final = f"{VARIABLE}={HOST}{MACHINE}/gpus"
"""What agents need in their environment to find the state of the stand-in for NVML."""

MOUNTS: Final = {"pci": "/sys/bus/pci/devices", "module": "/sys/module"}
"""Folders of a machine, by where its node shows them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeGpus:
    """Lasts until `remove`, or a power cut."""

    node: Node
    stand_in: StandIn
    """What NVML says, which tests change."""

    @classmethod
    async def insert(cls, node: Node, profile: Profile) -> "NodeGpus":
        """Give a node GPUs with a loaded driver."""
        folder = node.folder / "machine"
        stand_in = StandIn.create(folder / "gpus", profile, device_folder=Path("/dev"))
        shutil.copy(library() / NAME, folder)
        files = {"module/nvidia/refcnt": "0", "module/nvidia/version": DRIVER}
        for name, text in {**files, **pci_files(stand_in)}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{text}\n")
        for name, path in MOUNTS.items():
            await node.run("mount", "--bind", f"{MACHINE}/{name}", path)
        for device in _devices(stand_in):
            await node.run("mknod", "-m", "666", device, "c", "1", "3")
        await node.run("cp", f"{MACHINE}/{NAME}", _library())
        return cls(node=node, stand_in=stand_in)

    async def remove(self) -> None:
        """Take the GPUs away."""
        for path in MOUNTS.values():
            await self.node.run("umount", "--lazy", path)
        await self.node.run("rm", _library(), *_devices(self.stand_in))


def pci_files(stand_in: StandIn) -> dict[str, str]:
    """Return what the PCI bus shows of these GPUs, by path in the folder of their machine."""
    files: dict[str, str] = {}
    for gpu in stand_in.gpus:
        of = gpu.state.identity
        address = f"{of.pci_domain:04x}:{of.pci_bus:02x}:{of.pci_device:02x}.0"
        values = {
            "class": "0x030200",
            "vendor": f"0x{of.pci_device_id & 0xFFFF:04x}",
            "device": f"0x{of.pci_device_id >> 16:04x}",
            "subsystem_vendor": f"0x{of.pci_subsystem_id & 0xFFFF:04x}",
            "subsystem_device": f"0x{of.pci_subsystem_id >> 16:04x}",
        }
        files |= {f"pci/{address}/{name}": text for name, text in values.items()}
    return files


def _devices(stand_in: StandIn) -> list[str]:
    controls = ("/dev/nvidiactl", "/dev/nvidia-uvm")
    return [*controls, *(f"/dev/nvidia{gpu.state.identity.minor}" for gpu in stand_in.gpus)]


def _library() -> str:
    return f"/usr/lib/{os.uname().machine}-linux-gnu/{NAME}"
