"""The device files of a machine's GPUs."""

import re
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from libs.host.cdi.roots import Root, roots
from libs.host.tree import Tree

_CAPABILITIES: Final = "/dev/nvidia-caps"
_GRAPHICS: Final = "/dev/dri"
_MINORS: Final = "/proc/driver/nvidia-caps/mig-minors"
_PCI: Final = "/sys/bus/pci/devices"
CONTROL: Final = "/dev/nvidiactl"
CONTROLS: Final = ("/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", CONTROL)
"""The device files that every container with a GPU needs, as far as they exist."""
_CONTROL_NAME: Final = re.compile(CONTROL.rpartition("/")[2])
_MINOR: Final = re.compile(
    r"gpu([0-9]{1,4})/gi([0-9]{1,4})(?:/ci([0-9]{1,4}))?/access ([0-9]{1,9})"
)
_ADDRESS: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NODE: Final = re.compile(r"(card|renderD|controlD)[0-9]{1,4}")
_FOLDERS: Final = {
    "/dev": re.compile(r"nvidia([0-9]{1,4}|ctl|-modeset|-uvm|-uvm-tools)"),
    _CAPABILITIES: re.compile(r"nvidia-cap[0-9]{1,9}"),
    "/dev/nvidia-caps-imex-channels": re.compile(r"channel[0-9]{1,6}"),
}
"""The folders with device files of GPUs, and the names there."""


class DeviceFiles(msgspec.Struct, frozen=True, kw_only=True):
    hosts: Mapping[str, str] = {}
    """Where a file is on the machine, by path; absent: at the same path."""
    paths: frozenset[str]
    """The files of GPUs that exist, as containers see them."""
    capabilities: Mapping[tuple[int, int, int | None], str] = {}
    """The file of a MIG instance by minor number of the GPU, GPU instance and compute instance."""
    graphics: Mapping[str, tuple[str, ...]] = {}
    """The files for graphics by PCI address."""


def find(tree: Tree, driver_root: str) -> DeviceFiles:
    """Return the device files; those in the driver's root if the machine has none of its own.

    `driver_root` is empty if the machine has the driver.
    """
    root = _root(tree, driver_root)
    found = {
        f"{folder}/{name}": host_path
        for folder, pattern in _FOLDERS.items()
        for name, host_path in (root.files(folder, pattern) if root else {}).items()
    }
    rendering = root.files(_GRAPHICS, _NODE) if root else {}
    graphics = {
        address: nodes
        for address in tree.names(_PCI)
        if _ADDRESS.fullmatch(address) and (nodes := _graphics(tree, rendering, address))
    }
    hosts = found | {f"{_GRAPHICS}/{name}": each for name, each in rendering.items()}
    return DeviceFiles(
        hosts={path: host_path for path, host_path in hosts.items() if host_path != path},
        paths=frozenset(found),
        capabilities=parse_minors(tree.read_text(_MINORS) or ""),
        graphics=graphics,
    )


def _root(tree: Tree, driver_root: str) -> Root | None:
    """Return the first root that has the driver's control file; else the machine's."""
    found = roots(tree, driver_root)
    with_control = (root for root in found if root.files("/dev", _CONTROL_NAME))
    return next(with_control, found[0] if found else None)


def parse_minors(text: str) -> Mapping[tuple[int, int, int | None], str]:
    """Return the device files of MIG instances, from the driver's list of their minor numbers."""
    found = (_MINOR.fullmatch(line.strip()) for line in text.splitlines())
    return {
        (int(each[1]), int(each[2]), None if each[3] is None else int(each[3])): (
            f"{_CAPABILITIES}/nvidia-cap{int(each[4])}"
        )
        for each in found
        if each
    }


def address_of(pci: str) -> str:
    """Return a PCI address as the kernel writes it: NVML writes the domain with eight digits."""
    return pci.lower()[-12:]


def _graphics(tree: Tree, found: Collection[str], address: str) -> tuple[str, ...]:
    names = tree.names(f"{_PCI}/{address}/drm")
    return tuple(f"{_GRAPHICS}/{name}" for name in names if name in found)
