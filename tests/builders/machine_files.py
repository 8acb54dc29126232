"""Files of a machine, as its kernel writes them, below a folder that stands for its root."""

from collections.abc import Mapping
from pathlib import Path

from tests.unit.host.builders import put

H100: Mapping[str, str] = {
    "class": "0x030200",
    "vendor": "0x10de",
    "device": "0x2330",
    "subsystem_vendor": "0x10de",
    "subsystem_device": "0x16c1",
}
"""The files of a GPU on the PCI bus."""
NVSWITCH: Mapping[str, str] = {**H100, "class": "0x068000", "device": "0x22a3"}


def put_device(root: Path, address: str, files: Mapping[str, str] = H100) -> None:
    """Add a device to the PCI bus; a line for each of its files."""
    for name, text in files.items():
        put(root, f"/sys/bus/pci/devices/{address}/{name}", f"{text}\n")
