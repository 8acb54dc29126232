"""The device files of the driver in the machine's `/dev`, made where they are missing.

The kernel modules make none. A driver container makes them in its own `/dev`, where neither agents
nor other containers look, and a driver of the machine by a program that not every image has. Its
numbers are asked of the kernel: that of nvidia-uvm may be another one after each load.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from libs.host.tree import Tree

_DEVICES: Final = "/proc/devices"
_PARAMETERS: Final = "/proc/driver/nvidia/params"
_GPUS: Final = "/proc/driver/nvidia/gpus"
_CAPABILITIES: Final = "/proc/driver/nvidia/capabilities"
_DRIVER: Final = ("nvidia", "nvidia-frontend")
"""The driver's entry in `/proc/devices`, and that of older drivers."""
_CONTROL_MINOR: Final = 255
_MODESET_MINOR: Final = 254
_ALL_MAY_USE: Final = 0o666
_ENTRY: Final = re.compile(r" *([0-9]{1,4}) ([A-Za-z0-9_-]{1,64})")
_FIELD: Final = re.compile(r"([A-Za-z ]{1,40}):\s*([0-9]{1,9})")
_CAPABILITY: Final = re.compile(r"(?:gpu|gi|ci)[0-9]{1,4}")


class DeviceNode(msgspec.Struct, frozen=True):
    path: str
    major: int
    minor: int
    mode: int = _ALL_MAY_USE

    @property
    def number(self) -> int:
        return os.makedev(self.major, self.minor)


def make(tree: Tree) -> tuple[str, ...]:
    """Make what is missing, and replace what has numbers of an earlier load; return their paths.

    Anything else at such a path stays: a link or a file is of people. Raise OSError.
    """
    made = tuple(node for node in wanted(tree) if _is_needed(tree, node))
    for node in made:
        tree.remove(node.path)
        tree.make_device(node.path, node.major, node.minor, mode=node.mode)
    return tuple(node.path for node in made)


def _is_needed(tree: Tree, node: DeviceNode) -> bool:
    if tree.link(node.path) is not None:
        return False
    status = tree.status(node.path)
    if status is None:
        return True
    return stat.S_ISCHR(status.st_mode) and status.st_rdev != node.number


def wanted(tree: Tree) -> Iterator[DeviceNode]:
    """Yield the device files of the driver in the kernel; none where it is told to make none."""
    parameters = _fields(tree, _PARAMETERS)
    majors = _majors(tree.read_text(_DEVICES) or "")
    if not parameters.get("ModifyDeviceFiles", 1):
        return
    mode = parameters.get("DeviceFileMode", _ALL_MAY_USE) & 0o777
    major = next((majors[name] for name in _DRIVER if name in majors), None)
    if major is not None:
        yield DeviceNode("/dev/nvidiactl", major, _CONTROL_MINOR, mode)
        if tree.exists("/sys/module/nvidia_modeset"):
            yield DeviceNode("/dev/nvidia-modeset", major, _MODESET_MINOR, mode)
        for gpu in tree.names(_GPUS):
            minor = _fields(tree, f"{_GPUS}/{gpu}/information").get("Device Minor")
            if minor is not None and minor < _MODESET_MINOR:
                yield DeviceNode(f"/dev/nvidia{minor}", major, minor, mode)
    if (uvm := majors.get("nvidia-uvm")) is not None:
        yield DeviceNode("/dev/nvidia-uvm", uvm, 0, mode)
        yield DeviceNode("/dev/nvidia-uvm-tools", uvm, 1, mode)
    if (capabilities := majors.get("nvidia-caps")) is not None:
        for path in _capabilities(tree, _CAPABILITIES):
            fields = _fields(tree, path)
            minor = fields.get("DeviceFileMinor")
            if minor is not None and fields.get("DeviceFileModify", 1):
                file = f"/dev/nvidia-caps/nvidia-cap{minor}"
                file_mode = fields.get("DeviceFileMode", 0) & 0o777
                yield DeviceNode(file, capabilities, minor, file_mode)


def _majors(text: str) -> Mapping[str, int]:
    """Return the numbers of character devices by the names of their drivers."""
    characters = text.partition("Block devices:")[0]
    found = (_ENTRY.fullmatch(line) for line in characters.splitlines())
    return {each[2]: int(each[1]) for each in found if each}


def _fields(tree: Tree, path: str) -> Mapping[str, int]:
    found = (_FIELD.match(line) for line in (tree.read_text(path) or "").splitlines())
    return {each[1]: int(each[2]) for each in found if each}


def _capabilities(tree: Tree, folder: str) -> Iterator[str]:
    """Yield the files that tell of MIG's own device files, and of each instance's."""
    for path in (f"{folder}/mig/config", f"{folder}/mig/monitor"):
        if tree.exists(path):
            yield path
    for gpu in filter(_CAPABILITY.fullmatch, tree.names(folder)):
        instances = f"{folder}/{gpu}/mig"
        for instance in filter(_CAPABILITY.fullmatch, tree.names(instances)):
            yield f"{instances}/{instance}/access"
            for compute in filter(_CAPABILITY.fullmatch, tree.names(f"{instances}/{instance}")):
                yield f"{instances}/{instance}/{compute}/access"
