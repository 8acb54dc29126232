"""What keeps the GPUs of a simulated machine from being used, or is noted there."""

import struct

from libs.contracts.gpus import GpuProblem
from libs.host import pci
from libs.host.diagnosing import SHARED_MEMORY
from libs.host.kernel_log import PATH
from libs.testing.machines.state import MachineState

_BRIDGE = "0000:00:01.0"
_EXTENDED = 0x100
_ACS = 0x000D | 1 << 16
_REDIRECTS = 0b1100


class MachineFaults:
    def __init__(self, state: MachineState) -> None:
        self._state = state

    def refuse_modules(self, record: str) -> None:
        """Let the kernel load no module of a driver from now on, and log this record each time."""
        self._state.refusal = record

    def break_library(self, problem: GpuProblem | None) -> None:
        """Let the validator's process not open the driver's library; None: repair it."""
        self._state.library_problem = problem

    def replace_library(self, version: str) -> None:
        """Install the driver's library in another version than the modules."""
        self._state.library_version = version

    def add_switches(self, count: int) -> None:
        """Add NVSwitches to the PCI bus."""
        for number in range(count):
            folder = f"{pci.DEVICES}/0000:{0xC0 + number:02x}:00.0"
            values = ("0x068000", f"0x{pci.NVIDIA}", "0x22a3", f"0x{pci.NVIDIA}", "0x1796")
            names = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")
            for name, value in zip(names, values, strict=True):
                self._state.host_tree.put(f"{folder}/{name}", f"{value}\n")

    def remove_shared_memory(self) -> None:
        self._state.host_tree.remove(SHARED_MEMORY)

    def translate_copies(self) -> None:
        """Let the IOMMU translate what the GPUs read and write."""
        for gpu in self._state.gpus:
            path = f"/sys/kernel/iommu_groups/{gpu.index}/type"
            self._state.host_tree.put(path, "DMA-FQ\n")

    def redirect_copies(self) -> None:
        """Put the first GPU below a bridge that redirects what it sends to other GPUs."""
        host_tree, gpu = self._state.host_tree, self._state.gpus[0]
        folder = f"/sys/devices/pci0000:00/{_BRIDGE}"
        host_tree.make_folder(folder)
        host_tree.at(f"{pci.DEVICES}/{gpu.pci}").rename(host_tree.at(f"{folder}/{gpu.pci}"))
        host_tree.link(
            f"{pci.DEVICES}/{gpu.pci}", f"../../../devices/pci0000:00/{_BRIDGE}/{gpu.pci}"
        )
        space = bytearray(4096)
        struct.pack_into("<IHH", space, _EXTENDED, _ACS, 0, _REDIRECTS)
        host_tree.put(f"{pci.DEVICES}/{_BRIDGE}/config", bytes(space))


def log_refusal(state: MachineState) -> None:
    """Write the kernel's record about a refused module."""
    record = f"4,{state.next_attempt('kernel log')},{int(state.clock.now() * 1e6)},-;"
    earlier = state.tree.read_text(PATH) or ""
    state.host_tree.put(PATH, f"{earlier}{record}{state.refusal}\n")
