"""PCI bridges that redirect what devices below them send to each other (ACS)."""

import struct
from collections.abc import Iterable
from typing import Final

from libs.contracts.facts import PciDevice
from libs.host.pci import DEVICES
from libs.host.tree import Tree, Unreadable

_FIRST: Final = 0x100
"""Offset of the first extended capability; a process without rights reads only 64 bytes."""
_ACS: Final = 0x000D
_CONTROL: Final = 6
_REDIRECT: Final = 0b1100
"""Of the control word: redirect requests, redirect completions."""
_MOST: Final = 64
"""Capabilities of a device; a broken device could list them in a circle."""


def bridges_above(tree: Tree, devices: Iterable[PciDevice]) -> frozenset[str]:
    """Return the addresses of the bridges between the root complex and these devices."""
    targets = (tree.link(f"{DEVICES}/{device.address}") or "" for device in devices)
    return frozenset(
        name for target in targets for name in target.split("/")[:-1] if name.count(":") == 2
    )


def redirects(tree: Tree, bridge: str) -> bool:
    """Whether the bridge is known to redirect."""
    try:
        config = tree.data(f"{DEVICES}/{bridge}/config") or b""
    except Unreadable:
        return False
    return is_redirecting(config)


def is_redirecting(config: bytes) -> bool:
    """Whether a configuration space has a capability ACS that redirects."""
    offset = _FIRST
    for _ in range(_MOST):
        if offset < _FIRST or offset + 8 > len(config):
            return False
        (header,) = struct.unpack_from("<I", config, offset)
        if header & 0xFFFF == _ACS:
            (control,) = struct.unpack_from("<H", config, offset + _CONTROL)
            return bool(control & _REDIRECT)
        offset = header >> 20
    return False
