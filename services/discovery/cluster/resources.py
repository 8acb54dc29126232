"""What this role reads of objects, and where they live.

Of Nodes there may be thousands: what nobody here asks about is dropped as they are read. Whose a
label is, the API server keeps: it is read from a Node's managedFields.
"""

from collections.abc import Iterator, Mapping, Sequence
from sys import intern
from typing import Any, Final

import msgspec

from libs.contracts.node import RECORD_ANNOTATION
from libs.kube import views
from libs.kube.custom_resources import CustomObject, custom_resource, custom_resources
from libs.kube.resources import Resource
from libs.policy.kinds import GPU_CLUSTER, POLICY_KINDS
from services.discovery.cluster.label_keys import CLAIM_SUFFIX, FEATURES

MANAGER: Final = "sluice-discovery"
"""The field manager of every write of this role."""

_NVIDIA: Final = "nvidia.com/"


class Node(views.Object, frozen=True, kw_only=True):
    """A Node with its labels, and who owns those that could be ours."""

    status: views.NodeStatus = views.NodeStatus()
    ours: frozenset[str] = frozenset()
    """Labels that are as we applied them last."""
    others: frozenset[str] = frozenset()
    """Labels that somebody else owns, alone or together with us."""
    claimed: frozenset[str] = frozenset()
    """Labels that somebody else's feature discovery lists as its own."""

    def __post_init__(self) -> None:
        metadata = self.metadata
        ours, others = self.ours, self.others
        if metadata.managed_fields:
            ours, others = _owned(metadata.managed_fields)
        claimed = _claimed(metadata.annotations) or self.claimed
        record = metadata.annotations.get(RECORD_ANNOTATION)
        lean = msgspec.structs.replace(
            metadata,
            labels={intern(key): value for key, value in metadata.labels.items()},
            annotations={} if record is None else {RECORD_ANNOTATION: record},
            managed_fields=(),
        )
        status = views.NodeStatus(node_info=self.status.node_info)
        msgspec.structs.force_setattr(self, "metadata", lean)
        msgspec.structs.force_setattr(self, "status", status)
        msgspec.structs.force_setattr(self, "ours", ours)
        msgspec.structs.force_setattr(self, "others", others)
        msgspec.structs.force_setattr(self, "claimed", claimed)

    @property
    def record(self) -> str:
        """Where its upgrade stands, as it is written; empty where there is none."""
        return self.metadata.annotations.get(RECORD_ANNOTATION, "")

    @property
    def matters(self) -> object:
        """What of it counts here: the rest is a kubelet's sign of life."""
        metadata = self.metadata
        boot_id = self.status.node_info.boot_id
        mine = (self.ours, self.others, self.claimed)
        return metadata.uid, metadata.labels, self.record, boot_id, mine


NODES: Final = Resource(plural="nodes", kind="Node", namespaced=False, creatable=False, view=Node)
GPU_CLUSTERS: Final = custom_resource(GPU_CLUSTER, views.Object)
POLICIES: Final = custom_resources(POLICY_KINDS, CustomObject)
"""What people say what they want in, by kind."""


def _owned(entries: Sequence[views.ManagedFields]) -> tuple[frozenset[str], frozenset[str]]:
    ours: set[str] = set()
    others: set[str] = set()
    for entry in entries:
        if not entry.subresource:
            mine = entry.manager == MANAGER and entry.operation == "Apply"
            (ours if mine else others).update(_labels(entry))
    return frozenset(ours), frozenset(others)


def _labels(entry: views.ManagedFields) -> Iterator[str]:
    told = bytes(entry.fields_v1)
    # Most entries are of kubelets and controllers: to read them costs more than all the rest.
    if _NVIDIA.encode() not in told and FEATURES.encode() not in told:
        return
    metadata: Mapping[str, Any] = msgspec.json.decode(told).get("f:metadata", {})
    for field in metadata.get("f:labels", {}):
        key = field.removeprefix("f:")
        if key.startswith((_NVIDIA, FEATURES)):
            yield intern(key)


def _claimed(annotations: Mapping[str, str]) -> frozenset[str]:
    """An instance of a feature discovery that has a name puts it before the annotation's."""
    return frozenset(
        intern(name if "/" in name else f"{FEATURES}{name}")
        for key, listed in annotations.items()
        if key.endswith(CLAIM_SUFFIX)
        for name in listed.split(",")
        if name
    )
