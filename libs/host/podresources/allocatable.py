"""The devices that the kubelet can give to pods: those of device plugins that are healthy. Pure.

The kubelet repeats what device plugins chose, so the number of names is limited.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from libs.host.podresources.api_pb2 import AllocatableResourcesResponse

PREFIX: Final = "nvidia.com/"
MAX_DEVICES: Final = 200_000
"""The most devices that are read of one answer; a kubelet with more would fill our memory.

128 GPUs with as many replicas as a device plugin offers are fewer.
"""

Allocatable = Mapping[str, frozenset[str]]
"""The names of the devices by resource."""


class AllocatableDevices(Protocol):
    """Asks a kubelet for the devices that it can give to pods."""

    def allocatable(self) -> Allocatable:
        """Return the devices of NVIDIA's resources, or raise `KubeletUnavailable`."""
        ...


def allocatable_devices(response: "AllocatableResourcesResponse") -> Allocatable:
    """Return the devices in a response whose resource is one of NVIDIA's."""
    found: dict[str, set[str]] = {}
    for count, (resource, device) in enumerate(_devices(response)):
        if count == MAX_DEVICES:
            break
        found.setdefault(resource, set()).add(device)
    return {resource: frozenset(devices) for resource, devices in found.items()}


def _devices(response: "AllocatableResourcesResponse") -> Iterator[tuple[str, str]]:
    # A device that has a place in the machine is an entry of its own.
    for each in response.devices:
        if each.resource_name.startswith(PREFIX):
            for device in each.device_ids:
                yield each.resource_name, device
