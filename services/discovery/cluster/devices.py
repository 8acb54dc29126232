"""The cached Device: of each object only what decisions compare.

A fleet has tens of thousands of Devices, so the description is kept as a digest.
"""

from hashlib import blake2b
from sys import intern
from typing import Any, Final

import msgspec

from libs.contracts.device import UNKNOWN, DeviceHealth, DeviceSpec, DeviceStatus
from libs.kube import views
from libs.kube.resources import Resource, custom_resource
from libs.kube.views import OwnerReference
from libs.policy.kinds.device import DEVICE

PRODUCT: Final = "nvidia.com/gpu.product"
UUID: Final = "nvidia.com/gpu.uuid"
BY_NODE: Final = "node"
"""The index of Devices by the name of their node."""

NOT_JUDGED: Final = DeviceHealth(state=UNKNOWN)
_NO_SPEC: Final = DeviceSpec(node="", index=0, product="")
_NO_STATUS: Final = DeviceStatus()
_NAME_LIMIT: Final = 253
"""Characters of an object's name that the API server accepts."""


class FullDevice(views.Object, frozen=True, kw_only=True):
    """A Device with its whole content."""

    spec: DeviceSpec
    status: DeviceStatus = DeviceStatus()


class Device(FullDevice, frozen=True, kw_only=True):
    """A Device whose content is reduced to what decisions need."""

    digest: bytes = b""
    """Of everything that is written, except the health."""
    health: DeviceHealth = NOT_JUDGED
    node: str = ""
    owner: str = ""
    """The uid of the Node that owns the object."""
    index: int = 0
    uuid: str = ""
    pci: str = ""
    driver: str = ""

    def __post_init__(self) -> None:
        if self.digest:
            return
        metadata, status = self.metadata, self.status
        owners = metadata.owner_references
        owner = owners[0].uid if len(owners) == 1 and owners[0].kind == "Node" else ""
        lean = views.Metadata(
            name=metadata.name,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            labels=_NO_LABELS,
        )
        digest = digest_of(metadata.labels, owner=owner, spec=self.spec, status=status)
        for name, value in (
            ("metadata", lean),
            ("spec", _NO_SPEC),
            ("status", _NO_STATUS),
            ("digest", digest),
            ("health", NOT_JUDGED if status.health is None else status.health),
            ("node", intern(self.spec.node)),
            ("owner", intern(owner)),
            ("index", self.spec.index),
            ("uuid", status.uuid),
            ("pci", intern(status.pci)),
            ("driver", intern(status.driver)),
        ):
            msgspec.structs.force_setattr(self, name, value)


_NO_LABELS: Final[dict[str, str]] = {}
"""Shared by all cached Devices, whose labels are part of the digest."""

DEVICES: Final[Resource[Device]] = custom_resource(DEVICE, Device)
FULL_DEVICES: Final[Resource[FullDevice]] = custom_resource(DEVICE, FullDevice)


class WantedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a Device."""

    name: str
    owner: OwnerReference
    labels: dict[str, str]
    spec: DeviceSpec
    status: DeviceStatus

    @property
    def digest(self) -> bytes:
        return digest_of(self.labels, owner=self.owner.uid, spec=self.spec, status=self.status)

    def manifest(self) -> dict[str, Any]:
        """Return the object as it is applied."""
        reference = {
            "apiVersion": "v1",
            "kind": self.owner.kind,
            "name": self.owner.name,
            "uid": self.owner.uid,
        }
        return {
            "metadata": {
                "name": self.name,
                "labels": self.labels,
                "ownerReferences": [reference],
            },
            "spec": msgspec.to_builtins(self.spec),
            "status": msgspec.to_builtins(self.status),
        }


def digest_of(
    labels: dict[str, str], *, owner: str, spec: DeviceSpec, status: DeviceStatus
) -> bytes:
    """Return the digest of all that is written, except the health."""
    described = msgspec.structs.replace(status, health=None)
    ours = (labels.get(PRODUCT), labels.get(UUID))
    return blake2b(msgspec.json.encode((ours, owner, spec, described)), digest_size=16).digest()


def device_name(node: str, index: int) -> str:
    """Return the name of a Device: `gpu-0-node-<node>`.

    If that is too long, the node's name is cut, and a digest of it makes the name unique.
    """
    prefix = f"gpu-{index}-node-"
    if len(prefix) + len(node) <= _NAME_LIMIT:
        return prefix + node
    suffix = f"-{blake2b(node.encode(), digest_size=5).hexdigest()}"
    return prefix + node[: _NAME_LIMIT - len(prefix) - len(suffix)].rstrip("-.") + suffix


def wanted_from(full: FullDevice, health: DeviceHealth, *, owner: OwnerReference) -> WantedDevice:
    """Return the content of an existing Device with another health."""
    labels = {
        key: full.metadata.labels[key] for key in (PRODUCT, UUID) if key in full.metadata.labels
    }
    return WantedDevice(
        name=full.metadata.name,
        owner=owner,
        labels=labels,
        spec=full.spec,
        status=msgspec.structs.replace(full.status, health=health),
    )
