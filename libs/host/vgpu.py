"""Whether a machine is a guest with virtual GPUs, from the PCI configuration of its devices.

A hypervisor with NVIDIA's vGPU manager adds a vendor-specific capability, which begins with `VF`
and has records. One of them names the driver of the host.
"""

from collections.abc import Iterator
from typing import Final

from libs.contracts.facts import Vgpu
from libs.host.pci import DEVICES, NVIDIA
from libs.host.tree import Tree, Unreadable

_CONFIG_BYTES: Final = 256
"""What the kernel shows of the configuration to root; to others it shows 64 bytes."""
_STATUS: Final = 0x06
_HAS_CAPABILITIES: Final = 0x10
_FIRST_CAPABILITY: Final = 0x34
_VENDOR_SPECIFIC: Final = 0x09
_SIGNATURE: Final = b"VF"
_RECORDS: Final = 5
"""Where the records begin in the capability."""
_HOST_DRIVER: Final = 0
"""The id of the record with the host's driver."""
_TEXT: Final = 10
"""Bytes of a version and of a branch."""


def vgpu(tree: Tree) -> Vgpu | None:
    """Return what the NVIDIA devices say; None without any, or if one cannot be read."""
    configs = [each for each in (_config(tree, address) for address in _addresses(tree)) if each]
    found = [each for each in map(_capability, configs) if each]
    if found:
        version, branch = _host_driver(found[0])
        return Vgpu(present=True, host_driver_version=version, host_driver_branch=branch)
    return Vgpu() if configs else None


def _addresses(tree: Tree) -> Iterator[str]:
    for address in tree.names(DEVICES):
        if (tree.word(f"{DEVICES}/{address}/vendor") or "").removeprefix("0x") == NVIDIA:
            yield address


def _config(tree: Tree, address: str) -> bytes | None:
    path = f"{DEVICES}/{address}/config"
    data = tree.data(path)
    if data is not None and len(data) < _CONFIG_BYTES:
        raise Unreadable(path, f"it has {len(data)} bytes: only root may read all {_CONFIG_BYTES}")
    return data and data[:_CONFIG_BYTES]


def _capability(config: bytes) -> bytes:
    """Return the capability of a virtual GPU; empty for another device."""
    if not config[_STATUS] & _HAS_CAPABILITIES:
        return b""
    start, seen = config[_FIRST_CAPABILITY], set[int]()
    while 0x40 <= start <= _CONFIG_BYTES - _RECORDS and start not in seen:
        seen.add(start)
        found = config[start : start + config[start + 2]]
        if config[start] == _VENDOR_SPECIFIC and found[3:5] == _SIGNATURE:
            return found
        start = config[start + 1]
    return b""


def _host_driver(capability: bytes) -> tuple[str, str]:
    """Return version and branch of the host's driver; empty where they are not told."""
    start = _RECORDS
    while start + 2 + 2 * _TEXT <= len(capability):
        kind, length = capability[start], capability[start + 1]
        if kind == _HOST_DRIVER:
            texts = capability[start + 2 : start + 2 + 2 * _TEXT]
            return _text(texts[:_TEXT]), _text(texts[_TEXT:])
        if length == 0:
            break
        start += length
    return "", ""


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode("ascii", errors="replace")
