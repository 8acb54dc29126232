"""What the scheduler reads of objects, and where they live.

Of Nodes there may be thousands: what nobody here asks about is dropped as they are read.
"""

from sys import intern
from typing import Any, Final

import msgspec

from libs.contracts import node as keys
from libs.contracts import rollout
from libs.kube import views
from libs.kube.custom_resources import CustomObject, custom_resource, custom_resources
from libs.kube.resources import Resource
from libs.policy.kinds import GPU_CLUSTER, POLICY_KINDS
from services.scheduler.managed_fields import FieldOwners, field_owners

ANNOTATIONS: Final = frozenset(
    {
        keys.LEASE_ANNOTATION,
        keys.RECORD_ANNOTATION,
        keys.REQUEST_ANNOTATION,
        keys.REQUESTED_ANNOTATION,
        keys.SAFE_LOAD_ANNOTATION,
        keys.INITIALLY_CORDONED_ANNOTATION,
    }
)
"""Those of a Node that count here."""

GPU: Final = "nvidia.com/gpu"


class Node(views.Object, frozen=True, kw_only=True):
    """A Node, and who owns those of its fields that we share with others."""

    spec: views.NodeSpec = views.NodeSpec()
    status: views.NodeStatus = views.NodeStatus()
    owned: FieldOwners = FieldOwners()

    def __post_init__(self) -> None:
        metadata, status = self.metadata, self.status
        found = field_owners(metadata.managed_fields) if metadata.managed_fields else self.owned
        annotations = {
            key: metadata.annotations[key] for key in ANNOTATIONS & metadata.annotations.keys()
        }
        lean = msgspec.structs.replace(
            metadata,
            labels={intern(key): value for key, value in metadata.labels.items()},
            annotations=annotations,
            managed_fields=(),
        )
        slim = msgspec.structs.replace(
            status,
            conditions=tuple(one for one in status.conditions if one.type == "Ready"),
            allocatable={},
            capacity={GPU: status.capacity[GPU]} if GPU in status.capacity else {},
        )
        msgspec.structs.force_setattr(self, "metadata", lean)
        msgspec.structs.force_setattr(self, "status", slim)
        msgspec.structs.force_setattr(self, "owned", found)


class Volume(views.View, frozen=True, kw_only=True):
    """Of a pod."""

    name: str
    empty_dir: dict[str, Any] | None = None


class PodSpec(views.PodSpec, frozen=True, kw_only=True):
    """With what tells whether it may be evicted."""

    volumes: tuple[Volume, ...] = ()
    node_selector: dict[str, str] = {}


class Pod(views.Object, frozen=True, kw_only=True):
    """A pod, of whatever kind."""

    spec: PodSpec = PodSpec()
    status: views.PodStatus = views.PodStatus()

    def __post_init__(self) -> None:
        lean = msgspec.structs.replace(self.metadata, managed_fields=())
        msgspec.structs.force_setattr(self, "metadata", lean)


class DaemonSet(views.DaemonSet, frozen=True, kw_only=True):
    """A driver's, as far as it tells which driver that is."""

    def __post_init__(self) -> None:
        lean = msgspec.structs.replace(self.metadata, managed_fields=())
        msgspec.structs.force_setattr(self, "metadata", lean)


class Rollout(views.Object, frozen=True, kw_only=True):
    """People's part, and ours."""

    spec: rollout.RolloutSpec = rollout.RolloutSpec()
    status: rollout.RolloutStatus = rollout.RolloutStatus()

    def __post_init__(self) -> None:
        lean = msgspec.structs.replace(self.metadata, managed_fields=())
        msgspec.structs.force_setattr(self, "metadata", lean)


NODES: Final = Resource(plural="nodes", kind="Node", namespaced=False, creatable=False, view=Node)
PODS: Final = Resource(plural="pods", kind="Pod", view=Pod)
DAEMON_SETS: Final = Resource(group="apps", plural="daemonsets", kind="DaemonSet", view=DaemonSet)
ROLLOUTS: Final = Resource(
    group=rollout.GROUP,
    version=rollout.VERSION,
    plural=rollout.PLURAL,
    kind=rollout.KIND,
    namespaced=False,
    view=Rollout,
)
GPU_CLUSTERS: Final = custom_resource(GPU_CLUSTER, views.Object)
POLICIES: Final = custom_resources(POLICY_KINDS, CustomObject)
"""What people say what they want in, by kind."""
