"""The kinds of dynamic resource allocation: only the fields in use."""

from typing import Final

import msgspec

from libs.kube import views
from libs.kube.resources import Resource
from libs.kube.views.claims import GROUP, RESOURCE_CLAIMS, ResourceClaim

VERSIONS: Final = ("v1", "v1beta1")
"""Those that are asked for, in this order: Kubernetes has the first since 1.34."""
DRIVER: Final = "gpu.nvidia.com"
"""The name of NVIDIA's driver, so that the claims of a cluster need not change."""


def claims(version: str) -> Resource[ResourceClaim]:
    return msgspec.structs.replace(RESOURCE_CLAIMS, version=version)


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
