"""The named diagnoses of a node: what keeps its GPUs from being used, and what to do."""

from collections.abc import Mapping
from typing import Final

from libs.contracts.message import OpenEnum


class Diagnosis(OpenEnum):
    """What is wrong with a node, or what should be known of it."""

    NOUVEAU = "nouveau"
    SECURE_BOOT = "secure-boot"
    OTHER_KERNEL = "other-kernel"
    MISSING_SYMBOL = "missing-symbol"
    NO_GPU = "no-gpu"
    VERSION_MISMATCH = "version-mismatch"
    NO_DEVICE_FILES = "no-device-files"
    FABRIC_MANAGER = "fabric-manager"
    RUNTIME_HANDLER = "runtime-handler"
    SHARED_MEMORY = "shared-memory"
    IOMMU = "iommu"
    ACS = "acs"


MEANINGS: Final[Mapping[Diagnosis, tuple[str, str]]] = {
    Diagnosis.NOUVEAU: (
        "the open driver nouveau is loaded; it excludes every other driver",
        "blacklist nouveau on this machine and reboot it",
    ),
    Diagnosis.SECURE_BOOT: (
        "the kernel loads no module without a key that it trusts, and refuses this driver's",
        "enrol the key that signs the driver's modules, or turn Secure Boot off",
    ),
    Diagnosis.OTHER_KERNEL: (
        "the kernel refused a module of the driver, because it was built for another kernel",
        "install the headers of the running kernel, or use a driver that is built for it",
    ),
    Diagnosis.MISSING_SYMBOL: (
        "the kernel lacks a symbol that a module of the driver needs, and its log names",
        "install the kernel's further modules, such as linux-modules-extra on Ubuntu",
    ),
    Diagnosis.NO_GPU: (
        "the driver found no GPU that it can use",
        "check that it supports the machine's GPUs, and that no other driver has them",
    ),
    Diagnosis.VERSION_MISMATCH: (
        "the driver's libraries are of another version than the driver in the kernel",
        "remove the other driver that is installed on this machine, or reload the kernel modules",
    ),
    Diagnosis.NO_DEVICE_FILES: (
        "the driver is loaded, but device files of it are missing",
        "run nvidia-modprobe on the machine, or see the log of the driver container",
    ),
    Diagnosis.FABRIC_MANAGER: (
        "the GPUs wait for the fabric manager, which the machine's NVSwitches need",
        "check that nv-fabricmanager runs, in the version of the driver",
    ),
    Diagnosis.RUNTIME_HANDLER: (
        "the container runtime lacks handlers of the RuntimeClasses, or reads no CDI specs",
        "the line `container runtime` of `sluice why` says why it is not configured",
    ),
    Diagnosis.SHARED_MEMORY: (
        "the machine's /dev/shm is missing or has less than 64 MiB",
        "mount a tmpfs at /dev/shm: programs that use several GPUs need it",
    ),
    Diagnosis.IOMMU: (
        "the IOMMU translates what the GPUs read and write, which slows copies between them",
        "boot with iommu=pt, unless GPUs are given to virtual machines",
    ),
    Diagnosis.ACS: (
        "PCI bridges above the GPUs redirect copies between them (ACS), which slows them",
        "turn ACS off for these bridges, unless GPUs are given to virtual machines",
    ),
}
"""By diagnosis: what it means, and what to do, for people."""

NOTES: Final = frozenset(
    {Diagnosis.RUNTIME_HANDLER, Diagnosis.SHARED_MEMORY, Diagnosis.IOMMU, Diagnosis.ACS}
)
"""Those that do not hinder a proof."""


def describe(diagnosis: Diagnosis | None) -> str:
    """Return what it means and what to do, for people; empty for what is not known here."""
    return "" if diagnosis is None else ": ".join(MEANINGS.get(diagnosis, ()))
