"""What keeps a driver from being loaded, and what should be known of a machine.

The machine is read here, and judged in pure functions. All functions that read block.
"""

from collections.abc import Collection, Iterator
from typing import Final

from libs.contracts.diagnoses import Diagnosis
from libs.contracts.facts import PciDevice
from libs.host import acs, modules, pci, system
from libs.host.module_log import ModuleLog, Refusal
from libs.host.tree import Tree, Unreadable

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108
LEAST_SHARED_MEMORY: Final = 64 << 20
"""Bytes: what a container runtime gives to a pod."""
RUNTIME_LACKS: Final = "/run/sluice/runtime-lacks"
"""What the driver agent leaves while the container runtime does not know what it should."""
_OBSTACLES: Final = {
    Refusal.KEY: Diagnosis.SECURE_BOOT,
    Refusal.KERNEL: Diagnosis.OTHER_KERNEL,
    Refusal.SYMBOL: Diagnosis.MISSING_SYMBOL,
    Refusal.NO_GPU: Diagnosis.NO_GPU,
}
_GROUPS: Final = "/sys/kernel/iommu_groups"


def obstacle(tree: Tree, log: ModuleLog) -> Diagnosis | None:
    """Return why the driver is not loaded; None if it is, or if nothing is known."""
    loaded = modules.loaded(tree)
    if modules.DRIVER in loaded:
        return None
    return judge_obstacle(
        loaded,
        refusal=log.refusal(),
        is_log_readable=log.is_readable,
        secure_boot=system.secure_boot(tree),
    )


def judge_obstacle(
    loaded: Collection[str], *, refusal: Refusal | None, is_log_readable: bool, secure_boot: bool
) -> Diagnosis | None:
    """Return why the driver is not loaded. Secure Boot counts where nothing else tells."""
    if modules.NOUVEAU in loaded:
        return Diagnosis.NOUVEAU
    if refusal is None:
        return Diagnosis.SECURE_BOOT if secure_boot and not is_log_readable else None
    return _OBSTACLES[refusal]


def notes(tree: Tree) -> tuple[Diagnosis, ...]:
    """Return what should be known of the machine, though it hinders no proof."""
    try:
        return tuple(_notes(tree))
    except Unreadable:
        return ()


def _notes(tree: Tree) -> Iterator[Diagnosis]:
    if tree.exists(RUNTIME_LACKS):
        yield Diagnosis.RUNTIME_HANDLER
    size = tree.size_of_file_system(SHARED_MEMORY)
    if size is None or size < LEAST_SHARED_MEMORY:
        yield Diagnosis.SHARED_MEMORY
    gpus = [device for device in pci.devices(tree) or () if pci.is_gpu(device)]
    if any(_is_translated(tree, gpu) for gpu in gpus):
        yield Diagnosis.IOMMU
    if any(acs.redirects(tree, bridge) for bridge in acs.bridges_above(tree, gpus)):
        yield Diagnosis.ACS


def _is_translated(tree: Tree, gpu: PciDevice) -> bool:
    """Whether the kernel says so; before 5.11 it does not."""
    try:
        kind = tree.word(f"{_GROUPS}/{gpu.iommu_group}/type") if gpu.iommu_group else None
    except Unreadable:
        return False
    return kind is not None and kind.startswith("DMA")
