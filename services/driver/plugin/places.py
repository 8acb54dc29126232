"""Where GPUs are in the machine, from sysfs and by their NVLinks, and how near they are."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from libs.contracts.facts import Gpu
from libs.host.pci import DEVICES
from libs.host.tree import Tree, Unreadable, number

_ADDRESS: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_MAX_NODE: Final = 1023
_LINK: Final = 100
"""What each NVLink between two GPUs counts: one counts more than any place on the PCI bus."""
_SAME_SWITCH, _SAME_BRIDGE, _SAME_ROOT, _SAME_NODE, _FAR = 50, 40, 30, 20, 10


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a GPU is in the machine."""

    numa_node: int | None = None
    bridges: tuple[str, ...] = ()
    """The PCI root and the bridges above the GPU, the root first; empty if they are not known."""
    address: str = ""
    """On the PCI bus; empty if it is not known."""
    link_ends: tuple[str, ...] = ()
    """The addresses at the other ends of its NVLinks; each link to an NVSwitch has the switch's."""


def place_of(tree: Tree, gpu: Gpu, link_ends: Iterable[str] = ()) -> Place:
    """Return where a GPU is, as far as the machine says."""
    address = _address(gpu.pci)
    if not _ADDRESS.fullmatch(address):
        return Place()
    ends = tuple(map(_address, link_ends))
    try:
        node = number(tree.word(f"{DEVICES}/{address}/numa_node"))
        link = tree.link(f"{DEVICES}/{address}") or ""
    except Unreadable:
        return Place(address=address, link_ends=ends)
    above = link.partition("devices/")[2].split("/")[:-1]
    return Place(
        numa_node=node if node is not None and 0 <= node <= _MAX_NODE else None,
        bridges=tuple(above),
        address=address,
        link_ends=ends,
    )


def _address(pci: str) -> str:
    """Return an address of NVML's as the kernel writes it."""
    domain, _, rest = pci.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def places_of(
    tree: Tree, gpus: Iterable[Gpu], links: Mapping[str, Iterable[str]]
) -> dict[str, Place]:
    """Return where GPUs are, by UUID; `links` has the other ends of their NVLinks."""
    return {gpu.uuid: place_of(tree, gpu, links.get(gpu.uuid, ())) for gpu in gpus if gpu.uuid}


def nearness(first: Place, second: Place) -> int:
    """Return how near two GPUs are; more is nearer.

    Each NVLink that joins the two counts more than any place on the PCI bus. Links to NVSwitches
    join all GPUs alike, and count nothing.
    """
    links = max(_links_to(first, second), _links_to(second, first))
    return _LINK * links + _nearness_on_bus(first, second)


def _links_to(first: Place, second: Place) -> int:
    return first.link_ends.count(second.address) if second.address else 0


def _nearness_on_bus(first: Place, second: Place) -> int:
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
