"""The words for what is wrong with a GPU or with NVML, and for what a GPU asks for."""

from collections.abc import Mapping
from typing import Final

from libs.contracts.message import Data, OpenEnum

GPU_RESOURCES: Final = ("nvidia.com/gpu", "nvidia.com/mig-")
"""How the names of resources begin by which a pod asks for GPUs."""


class GpuIdentity(Data, frozen=True, kw_only=True):
    """What identifies a GPU. The PCI address does where one of the UUIDs is not known."""

    uuid: str = ""
    pci: str = ""

    def is_same(self, other: "GpuIdentity") -> bool:
        if self.uuid and other.uuid:
            return self.uuid == other.uuid
        # NVML writes the PCI domain with eight digits, the kernel with four.
        return bool(self.pci) and self.pci.lower()[-12:] == other.pci.lower()[-12:]

    def describe(self) -> str:
        """Return a name for people."""
        if self.uuid and self.pci:
            return f"{self.uuid} at {self.pci}"
        return self.uuid or (f"the GPU at {self.pci}" if self.pci else "a GPU without an identity")


class XidCode(int):
    """The number of an XID, with the GPU instance to which the driver attributes it."""

    gpu_instance: int | None

    def __new__(cls, code: int, gpu_instance: int | None = None) -> "XidCode":
        """`gpu_instance` is None for the whole GPU."""
        made = super().__new__(cls, code)
        made.gpu_instance = gpu_instance
        return made


class GpuProblem(OpenEnum):
    """Why NVML, or one GPU, cannot be used."""

    NO_LIBRARY = "no-library"
    DRIVER_NOT_LOADED = "driver-not-loaded"
    VERSION_MISMATCH = "version-mismatch"
    NO_DEVICE_FILES = "no-device-files"
    NO_PERMISSION = "no-permission"
    NO_ANSWER = "no-answer"
    DRIVER_HUNG = "driver-hung"
    HUNG = "hung"
    LOST = "lost"
    RESET_REQUIRED = "reset-required"
    INSUFFICIENT_POWER = "insufficient-power"
    UNIDENTIFIED = "unidentified"
    FAILED = "failed"


REMEDIES: Final[Mapping[GpuProblem, str]] = {
    GpuProblem.NO_LIBRARY: (
        "libnvidia-ml.so.1 was not found: install the driver, or name the library's folder in"
        " SLUICE_NVML_LIBRARY"
    ),
    GpuProblem.DRIVER_NOT_LOADED: (
        "no NVIDIA driver is loaded: see the log of the driver container and the kernel log"
    ),
    GpuProblem.VERSION_MISMATCH: (
        "NVML is of another version than the driver in the kernel: remove the other driver that is"
        " installed on this machine, or reload the kernel modules"
    ),
    GpuProblem.NO_DEVICE_FILES: (
        "the driver is loaded, but /dev/nvidiactl is missing in this container: mount the host's"
        " /dev, or run nvidia-modprobe on the host"
    ),
    GpuProblem.NO_PERMISSION: (
        "the GPU's device files may not be opened: run this agent privileged"
    ),
    GpuProblem.NO_ANSWER: (
        "NVML did not answer in time; its process was ended, and the next query starts another:"
        " if that lasts, see the kernel log for Xid and reboot the node"
    ),
    GpuProblem.DRIVER_HUNG: (
        "the driver hung, and a process that waits in it cannot be ended: the node must be rebooted"
    ),
    GpuProblem.HUNG: (
        "the GPU does not answer: see the kernel log for Xid; drain the node, then reset the GPU"
    ),
    GpuProblem.LOST: (
        "the GPU fell off the bus: reboot the node, and replace the GPU if it is lost again"
    ),
    GpuProblem.RESET_REQUIRED: "the GPU must be reset: drain the node, then reset the GPU",
    GpuProblem.INSUFFICIENT_POWER: (
        "the GPU's external power is missing or too low: check its power cables"
    ),
    GpuProblem.UNIDENTIFIED: (
        "the GPU's UUID is malformed, is used by two GPUs, or changed while the driver was loaded:"
        " reboot the node, and replace the GPU if that remains"
    ),
    GpuProblem.FAILED: "NVML refused a query of the GPU: see the kernel log",
}
"""By problem: what is wrong and what to do, for people."""


class RecoveryAction(OpenEnum):
    """What a GPU needs in order to recover, as the driver judges."""

    NONE = "none"
    GPU_RESET = "gpu-reset"
    NODE_REBOOT = "node-reboot"
    DRAIN_P2P = "drain-p2p"
    DRAIN_AND_RESET = "drain-and-reset"
    RECOVER_IMEX_DOMAIN = "recover-imex-domain"
    BUS_RESET = "bus-reset"
    SYSTEM_REBOOT = "system-reboot"
    UNKNOWN_ACTION = "unknown"


class FabricState(OpenEnum):
    """How far a GPU's registration with the fabric manager is."""

    NOT_SUPPORTED = "not-supported"
    NOT_STARTED = "not-started"
    IN_PROGRESS = "in-progress"
    COMPLETED = "completed"
    FAILED = "failed"
