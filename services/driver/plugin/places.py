"""Where GPUs are in the machine, from sysfs, and how near they are to each other."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from libs.contracts.facts import Gpu
from libs.host.pci import DEVICES
from libs.host.tree import Tree, Unreadable, number

_ADDRESS: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_MAX_NODE: Final = 1023
_SAME_SWITCH, _SAME_BRIDGE, _SAME_ROOT, _SAME_NODE, _FAR = 50, 40, 30, 20, 10


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a GPU is in the machine."""

    numa_node: int | None = None
    bridges: tuple[str, ...] = ()
    """The PCI root and the bridges above the GPU, the root first; empty if they are not known."""


def place_of(tree: Tree, gpu: Gpu) -> Place:
    """Return where a GPU is, as far as the machine says."""
    domain, _, rest = gpu.pci.lower().partition(":")
    address = f"{domain[-4:]}:{rest}"
    if not _ADDRESS.fullmatch(address):
        return Place()
    try:
        node = number(tree.word(f"{DEVICES}/{address}/numa_node"))
        link = tree.link(f"{DEVICES}/{address}") or ""
    except Unreadable:
        return Place()
    above = link.partition("devices/")[2].split("/")[:-1]
    return Place(
        numa_node=node if node is not None and 0 <= node <= _MAX_NODE else None,
        bridges=tuple(above),
    )


def places_of(tree: Tree, gpus: Iterable[Gpu]) -> dict[str, Place]:
    """Return where GPUs are, by UUID."""
    return {gpu.uuid: place_of(tree, gpu) for gpu in gpus if gpu.uuid}


def nearness(first: Place, second: Place) -> int:
    """Return how near two GPUs are on the PCI bus; more is nearer."""
    shared = 0
    for one, other in zip(first.bridges, second.bridges, strict=False):
        if one != other:
            break
        shared += 1
    if shared > 1:
        own = max(len(first.bridges), len(second.bridges)) - shared
        return _SAME_SWITCH if own <= 1 else _SAME_BRIDGE
    if shared:
        return _SAME_ROOT
    return _SAME_NODE if first.numa_node == second.numa_node else _FAR
