"""What a device plugin offers the kubelet, and answers it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec


class OfferedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device of a resource, as the kubelet lists it."""

    id: str
    healthy: bool
    numa_node: int | None = None


Offers = Mapping[str, Sequence[OfferedDevice]]
"""The list of each resource."""


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A path of the machine in the container, which may not write there."""

    source: str
    target: str


class DeviceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A device file, which the container has at the same path and may read and write."""

    path: str


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """What one container gets."""

    cdi_devices: Sequence[str] = ()
    """Names such as `nvidia.com/gpu=GPU-…`."""
    annotations: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
    mounts: Sequence[Mount] = ()
    files: Sequence[DeviceFile] = ()


class AllocationRefused(Exception):
    """The devices cannot be given to a container. The text is the reason, for people."""


class Allocator(Protocol):
    """Decides for one resource. Calls do not block."""

    def allocate(self, ids: Sequence[str]) -> Allocation:
        """Return what a container gets for these devices, or raise `AllocationRefused`."""
        ...

    def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """Return which of the devices a container should get, or raise `AllocationRefused`."""
        ...
