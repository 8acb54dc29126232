"""The devices on a machine's PCI bus, as the kernel shows them."""

from libs.contracts.facts import PciDevice
from libs.host.tree import Tree

DEVICES = "/sys/bus/pci/devices"
NVIDIA = "10de"
_ASKED = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")


def devices(tree: Tree) -> tuple[PciDevice, ...] | None:
    """All of them, in order of their addresses; None where there is no such bus to be seen.

    A device of which the kernel does not tell everything is left out.
    """
    if not tree.exists(DEVICES):
        return None
    found = (_device(tree, address) for address in tree.names(DEVICES))
    return tuple(device for device in found if device is not None)


def is_gpu(device: PciDevice) -> bool:
    """Whether it is one of the GPUs that all this is about: a display or 3D controller."""
    return device.vendor == NVIDIA and device.device_class.startswith(("0300", "0302"))


def _device(tree: Tree, address: str) -> PciDevice | None:
    place = f"{DEVICES}/{address}"
    said = {name: tree.word(f"{place}/{name}") for name in _ASKED}
    if any(value is None for value in said.values()):
        return None
    read = {name: (value or "").removeprefix("0x") for name, value in said.items()}
    driver = tree.link(f"{place}/driver") or ""
    group = tree.link(f"{place}/iommu_group") or ""
    return PciDevice(
        address=address,
        vendor=read["vendor"],
        device=read["device"],
        device_class=read["class"][:4],
        subsystem_vendor=read["subsystem_vendor"],
        subsystem_device=read["subsystem_device"],
        driver=driver.rpartition("/")[2],
        numa_node=_number(tree.word(f"{place}/numa_node"), -1),
        sriov_total_vfs=_number(tree.word(f"{place}/sriov_totalvfs"), 0),
        iommu_group=group.rpartition("/")[2],
    )


def _number(text: str | None, otherwise: int) -> int:
    try:
        return int(text or "")
    except ValueError:
        return otherwise
