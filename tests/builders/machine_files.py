"""Files of a machine, as its kernel writes them, below a folder that stands for its root."""

from collections.abc import Mapping
from pathlib import Path

from libs.host.tree import Tree


def tree(root: Path, files: dict[str, str] | None = None, **links: str) -> Tree:
    for path, text in (files or {}).items():
        put(root, path, text)
    for path, target in links.items():
        link(root, path, target)
    return Tree(root)


def put(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, errors="surrogateescape")


def add_program(root: Path, path: str) -> None:
    put(root, path, "#!/bin/sh\n")
    (root / path.lstrip("/")).chmod(0o755)


def link(root: Path, path: str, target: str) -> None:
    """Create a link with the target as the machine would write it."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.symlink_to(target)


def vgpu_record(version: str, branch: str, *, kind: int = 0) -> bytes:
    """Return a record of the capability of a virtual GPU; kind 0 has the host's driver."""
    texts = (text.encode().ljust(10, b"\0") for text in (version, branch))
    return bytes((kind, 22)) + b"".join(texts)


def vgpu_capability(version: str, branch: str) -> bytes:
    """Return the content of the capability that a hypervisor adds to a virtual GPU."""
    return b"VF" + vgpu_record(version, branch)


def pci_config(*capabilities: tuple[int, bytes]) -> bytes:
    """Return a device's configuration whose capabilities (id, content) follow each other."""
    data = bytearray(256)
    if capabilities:
        data[0x06], data[0x34] = 0x10, 0x40
    start = 0x40
    for number, (kind, content) in enumerate(capabilities, start=1):
        length = 3 + len(content)
        following = 0 if number == len(capabilities) else start + length
        data[start : start + length] = bytes((kind, following, length)) + content
        start += length
    return bytes(data)


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
