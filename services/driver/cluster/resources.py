"""What this role reads of objects, and where they live.

Of what we write ourselves the whole wish is read, because it is compared; of the rest as little as
is needed: there may be thousands of nodes.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from libs.contracts import rollout
from libs.contracts.node import RECORD_ANNOTATION
from libs.kube import views
from libs.kube.custom_resources import CustomObject, custom_resource, custom_resources
from libs.kube.resources import CONFIG_MAPS, Resource
from libs.policy.kinds import GPU_CLUSTER, POLICY_KINDS
from libs.policy.render.rendered import MANAGED_BY

MANAGER: Final = "sluice-driver"
"""The field manager of every write of this role."""

MANAGED_LABEL: Final = "app.kubernetes.io/managed-by"
_OF_GPU_OPERATOR: Final = frozenset(("ClusterPolicy", "NVIDIADriver", "GPUCluster"))
_APPLIED_HASH: Final = "nvidia.com/last-applied-hash"
"""On what the GPU Operator made, also after its owner was taken off."""


class PolicyObject(CustomObject, frozen=True, kw_only=True):
    """A policy, as people wrote it and as we said last how it stands."""

    status: Any = None


class Node(views.Object, frozen=True, kw_only=True):
    """What of a node tells who wants it, what it runs and where it stands."""

    def __post_init__(self) -> None:
        record = self.metadata.annotations.get(RECORD_ANNOTATION)
        kept = {} if record is None else {RECORD_ANNOTATION: record}
        lean = msgspec.structs.replace(self.metadata, annotations=kept, managed_fields=())
        msgspec.structs.force_setattr(self, "metadata", lean)

    @property
    def record(self) -> str:
        """As it is written; empty where there is none."""
        return self.metadata.annotations.get(RECORD_ANNOTATION, "")


class DaemonSet(views.DaemonSet, frozen=True, kw_only=True):
    """With its wish."""

    spec: Any = None


class ConfigMap(views.Object, frozen=True, kw_only=True):
    """Files."""

    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None

    def __post_init__(self) -> None:
        # Of those of others only the names of the files count, and files may be large.
        if self.metadata.labels.get(MANAGED_LABEL) != MANAGED_BY:
            msgspec.structs.force_setattr(self, "data", dict.fromkeys(self.data or {}, ""))
            empty = dict.fromkeys(self.binary_data or {}, "")
            msgspec.structs.force_setattr(self, "binary_data", empty)

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of its files."""
        return (*(self.data or {}), *(self.binary_data or {}))


class RuntimeClass(views.Object, frozen=True, kw_only=True):
    """A name of a handler in the container runtime."""

    handler: str = ""


class Rollout(views.Object, frozen=True, kw_only=True):
    """Where a rollout stands, as text: here only counts what is named in it."""

    status: msgspec.Raw = msgspec.Raw(b"")

    def __post_init__(self) -> None:
        # As decoded it would keep the whole answer in memory that it was a part of.
        msgspec.structs.force_setattr(self, "status", self.status.copy())

    @property
    def text(self) -> str:
        """Its whole record."""
        return bytes(self.status).decode()


NODES = Resource(plural="nodes", kind="Node", namespaced=False, creatable=False, view=Node)
DAEMON_SETS = Resource(group="apps", plural="daemonsets", kind="DaemonSet", view=DaemonSet)
CONFIGS = Resource(plural=CONFIG_MAPS.plural, kind=CONFIG_MAPS.kind, view=ConfigMap)
RUNTIME_CLASSES = Resource(
    group="node.k8s.io",
    plural="runtimeclasses",
    kind="RuntimeClass",
    namespaced=False,
    view=RuntimeClass,
)
ROLLOUTS = Resource(
    group=rollout.GROUP,
    version=rollout.VERSION,
    plural=rollout.PLURAL,
    kind=rollout.KIND,
    namespaced=False,
    view=Rollout,
)
GPU_CLUSTERS: Final = custom_resource(GPU_CLUSTER, views.Object)
POLICIES: Final = custom_resources(POLICY_KINDS, PolicyObject)
"""What people say what they want in, by kind."""

OPERANDS: Final[Mapping[str, Resource[Any]]] = {
    resource.kind: resource for resource in (DAEMON_SETS, CONFIGS, RUNTIME_CLASSES)
}
"""What is made of it, by kind."""

WRITTEN: Final = (*OPERANDS, NODES.kind, *POLICIES)
"""Every kind that this role writes to."""


def operand_content(thing: views.Object) -> dict[str, Any]:
    """What an operand says beside its metadata."""
    match thing:
        case DaemonSet(spec=spec):
            return {"spec": spec}
        case ConfigMap(data=data):
            return {"data": data}
        case RuntimeClass(handler=handler):
            return {"handler": handler}
        case _:
            raise TypeError(f"a {type(thing).__name__} is no operand")


def is_ours(thing: views.Object) -> bool:
    """Whether we applied it: the API server keeps that, whatever labels say."""
    return any(
        fields.manager == MANAGER and fields.operation == "Apply" and not fields.subresource
        for fields in thing.metadata.managed_fields
    )


def is_of_gpu_operator(thing: views.Object) -> bool:
    """Whether the GPU Operator made it."""
    owners = {owner.kind for owner in thing.metadata.owner_references}
    return bool(owners & _OF_GPU_OPERATOR) or _APPLIED_HASH in thing.metadata.annotations
