"""The devices on a machine's PCI bus, from sysfs."""

from contextlib import suppress

from libs.contracts.facts import PciDevice
from libs.host.tree import Tree, Unreadable, number

DEVICES = "/sys/bus/pci/devices"
NVIDIA = "10de"
_NICS = "/sys/class/infiniband"
_REQUIRED = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")


def devices(tree: Tree) -> tuple[PciDevice, ...] | None:
    """Return the devices by address, without those with missing files; None without a PCI bus."""
    if not tree.exists(DEVICES):
        return None
    found = (_device(tree, address) for address in tree.names(DEVICES))
    return tuple(device for device in found if device is not None)


def is_gpu(device: PciDevice) -> bool:
    """Return whether the device is an NVIDIA display or 3D controller."""
    return device.vendor == NVIDIA and device.device_class.startswith(("0300", "0302"))


def is_switch(device: PciDevice) -> bool:
    """Return whether the device is an NVSwitch."""
    return device.vendor == NVIDIA and device.device_class == "0680"


def has_switches(tree: Tree) -> bool:
    """Return whether NVSwitches join the GPUs: of the machine's bus, or managed through a NIC."""
    if any(is_switch(device) for device in devices(tree) or ()):
        return True
    return any(_manages_switches(tree, name) for name in tree.names(_NICS))


def _manages_switches(tree: Tree, nic: str) -> bool:
    with suppress(Unreadable):
        return b"SW_MNG" in (tree.data(f"{_NICS}/{nic}/device/vpd") or b"")
    return False


def _device(tree: Tree, address: str) -> PciDevice | None:
    folder = f"{DEVICES}/{address}"
    values: dict[str, str] = {}
    for name in _REQUIRED:
        if (value := tree.word(f"{folder}/{name}")) is None:
            return None
        values[name] = value.removeprefix("0x")
    driver = tree.link(f"{folder}/driver") or ""
    group = tree.link(f"{folder}/iommu_group") or ""
    numa_node = number(tree.word(f"{folder}/numa_node"))
    return PciDevice(
        address=address,
        vendor=values["vendor"],
        device=values["device"],
        device_class=values["class"][:4],
        subsystem_vendor=values["subsystem_vendor"],
        subsystem_device=values["subsystem_device"],
        driver=driver.rpartition("/")[2],
        numa_node=-1 if numa_node is None else numa_node,
        sriov_total_vfs=number(tree.word(f"{folder}/sriov_totalvfs")) or 0,
        iommu_group=group.rpartition("/")[2],
    )
