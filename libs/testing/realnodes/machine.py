"""The machine of a real node: GPUs, and a kernel into which a driver container loads the driver."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from libs.testing.image.driver_settings import INCIDENTS, DriverSettings, settings_file
from libs.testing.nvml import StandIn
from libs.testing.nvml.profiles import Profile
from libs.testing.realnodes.gpus import MOUNTS, pci_files
from libs.testing.realnodes.node import MACHINE, Node
from libs.testing.realnodes.stand_in_kernel import StandInKernel

_FOLDER: Final = "machine"


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeMachine:
    """Lasts as long as its node; after a power cut no module is loaded."""

    node: Node
    gpus: StandIn
    """What NVML says, which tests change."""
    kernel: StandInKernel

    @classmethod
    async def insert(cls, node: Node, profile: Profile) -> "NodeMachine":
        """Give a node GPUs that no driver has found yet."""
        folder = node.folder / _FOLDER
        gpus = StandIn.create(folder / "gpus", profile, device_folder=Path("/dev"))
        for name, text in pci_files(gpus).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{text}\n")
        kernel = StandInKernel(folder)
        kernel.boot()
        for name, path in MOUNTS.items():
            await node.run("mount", "--bind", f"{MACHINE}/{name}", path)
        return cls(node=node, gpus=gpus, kernel=kernel)

    async def power_cut(self) -> None:
        """Cut the power, and power on again."""
        await self.node.power_cut(
            binds={path: self.node.folder / _FOLDER / name for name, path in MOUNTS.items()},
            powered_off=self.kernel.boot,
        )

    def incidents(self) -> list[str]:
        """Return what happened on this machine and never must."""
        file = self.node.folder / _FOLDER / INCIDENTS
        return file.read_text().splitlines() if file.exists() else []

    def set_driver(self, version: str, settings: DriverSettings) -> None:
        """Say how containers of this driver behave from their next start on.

        One that hangs reads it at once.
        """
        file = self.node.folder / _FOLDER / settings_file(version)
        new = file.with_suffix(".new")
        new.write_text(json.dumps(asdict(settings)))
        new.replace(file)
