"""The kinds of dynamic resource allocation: only the fields in use."""

from typing import Final

import msgspec

from libs.kube import views
from libs.kube.resources import Resource

GROUP: Final = "resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta1")
"""Those that are asked for, in this order: Kubernetes has the first since 1.34."""
DRIVER: Final = "gpu.nvidia.com"
"""The name of NVIDIA's driver, so that the claims of a cluster need not change."""


class DeviceResult(views.View, frozen=True, kw_only=True):
    """A device that is allocated to a claim."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    """Whether it is for monitoring, beside the claim that uses it."""


class DeviceAllocation(views.View, frozen=True, kw_only=True):
    results: tuple[DeviceResult, ...] = ()


class Allocation(views.View, frozen=True, kw_only=True):
    devices: DeviceAllocation = DeviceAllocation()


class ClaimStatus(views.View, frozen=True, kw_only=True):
    allocation: Allocation | None = None


class ResourceClaim(views.Object, frozen=True, kw_only=True):
    status: ClaimStatus = ClaimStatus()

    def results(self) -> tuple[DeviceResult, ...]:
        """Return the devices of this driver that are allocated to the claim."""
        allocation = self.status.allocation
        if allocation is None:
            return ()
        return tuple(each for each in allocation.devices.results if each.driver == DRIVER)


def claims(version: str) -> Resource[ResourceClaim]:
    return Resource(
        group=GROUP,
        version=version,
        plural="resourceclaims",
        kind="ResourceClaim",
        optional=True,
        view=ResourceClaim,
    )


def slices(version: str) -> Resource[views.Object]:
    return Resource(
        group=GROUP,
        version=version,
        plural="resourceslices",
        kind="ResourceSlice",
        namespaced=False,
        optional=True,
        metadata_only=True,
        view=views.Object,
    )


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """The node of this process."""

    name: str
    uid: str
