"""Views of dynamic resource allocation: claims of pods to devices, once these are allocated.

One view for all readers: a fleet has a claim per pod with GPUs, and no more fields than these.
"""

from collections.abc import Collection
from typing import Final

from libs.kube.resources import Resource
from libs.kube.views import Object, View

GROUP: Final = "resource.k8s.io"


class DeviceResult(View, frozen=True, kw_only=True):
    """A device that is allocated to a claim."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    """For monitoring, beside the claim that uses it: the device stays free for others."""


class DeviceResults(View, frozen=True, kw_only=True):
    results: tuple[DeviceResult, ...] = ()


class Allocation(View, frozen=True, kw_only=True):
    devices: DeviceResults = DeviceResults()


class Consumer(View, frozen=True, kw_only=True):
    """A pod that may use the claim."""

    resource: str = ""
    name: str = ""
    uid: str = ""


class ClaimStatus(View, frozen=True, kw_only=True):
    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()


class ResourceClaim(Object, frozen=True, kw_only=True):
    status: ClaimStatus = ClaimStatus()

    @property
    def is_allocated(self) -> bool:
        return self.status.allocation is not None

    def devices_of(self, drivers: Collection[str]) -> tuple[DeviceResult, ...]:
        """Return the devices of these drivers; none before they are allocated."""
        allocation = self.status.allocation
        results = () if allocation is None else allocation.devices.results
        return tuple(each for each in results if each.driver in drivers)


RESOURCE_CLAIMS: Final = Resource(
    group=GROUP, plural="resourceclaims", kind="ResourceClaim", optional=True, view=ResourceClaim
)
"""Served since Kubernetes 1.34; before that as `v1beta1`, which has the same fields."""
