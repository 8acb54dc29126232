"""The Kubernetes objects that the scheduler reads, reduced to the fields that it uses.

There may be thousands of Nodes: unused fields are dropped while they are decoded.
"""

from collections.abc import Iterator, Mapping, Sequence
from sys import intern
from typing import Any, Final, TypeVar, cast

import msgspec

from libs.contracts import node as keys
from libs.contracts import rollout
from libs.contracts.message import MalformedMessage, Message, decode
from libs.contracts.node import (
    MANAGER,
    NodeLease,
    NodeRecord,
    NodeRequest,
    ValidationPod,
    user_of,
    validation_pod_of,
)
from libs.contracts.words import excerpt
from libs.kube import resources, views
from libs.kube.authors import Author, brake_author, last_owner, release_author
from libs.kube.ownership import OwnedFields, owned_fields
from libs.kube.resources import CustomObject, custom_resource, custom_resources
from libs.kube.views import claims
from libs.kube.views.lean import Unmanaged, keep_identity, keep_metadata
from libs.kube.views.placing import Toleration, Volume
from libs.policy import artefacts
from libs.policy.kinds import GPU_CLUSTER, POLICY_KINDS, ROLLOUT
from libs.policy.mig.config import CONFIG_KEY
from libs.rollout.views.node import MalformedAnnotation, NodeField

M = TypeVar("M", bound=Message)

_MAX_AUTHOR: Final = 100
"""Characters of who wrote a field that are repeated."""
NVIDIA: Final = "nvidia.com/"
"""How the names of NVIDIA's resources begin."""
GPU: Final = f"{NVIDIA}gpu"
GPU_CLAIM_DRIVERS: Final = frozenset({"gpu.nvidia.com", "compute-domain.nvidia.com"})
"""The drivers of resource claims whose devices keep the kernel modules in use."""

_MANAGED_LABELS: Final[Mapping[NodeField, str]] = {
    NodeField.STATE: f"f:{keys.STATE_LABEL}",
    NodeField.DRIVER: f"f:{keys.DRIVER_LABEL}",
    NodeField.MIG_STATE: f"f:{keys.MIG_STATE_LABEL}",
}
_MANAGED_ANNOTATIONS: Final[Mapping[NodeField, str]] = {
    NodeField.LEASE: f"f:{keys.LEASE_ANNOTATION}",
    NodeField.RECORD: f"f:{keys.RECORD_ANNOTATION}",
    NodeField.INITIALLY_CORDONED: f"f:{keys.INITIALLY_CORDONED_ANNOTATION}",
    NodeField.REQUEST: f"f:{keys.REQUEST_ANNOTATION}",
    NodeField.REQUESTED: f"f:{keys.REQUESTED_ANNOTATION}",
    NodeField.SAFE_LOAD: f"f:{keys.SAFE_LOAD_ANNOTATION}",
}


class Node(views.Object, frozen=True, kw_only=True):
    spec: views.NodeSpec = views.NodeSpec()
    status: views.NodeStatus = views.NodeStatus()
    field_managers: Mapping[NodeField, tuple[str, ...]] = {}
    """The managers of each owned field of an upgrade, the last writer last."""

    def __post_init__(self) -> None:
        metadata, status = self.metadata, self.status
        if metadata.managed_fields:
            views.settle(self, field_managers=_field_managers(metadata.managed_fields))
        reduced_status = msgspec.structs.replace(
            status,
            conditions=tuple(each for each in status.conditions if each.type == "Ready"),
            allocatable={
                intern(name): count
                for name, count in status.allocatable.items()
                if name.startswith(NVIDIA)
            },
            capacity={GPU: status.capacity[GPU]} if GPU in status.capacity else {},
        )
        keep_metadata(self, annotations=keys.READ_ANNOTATIONS)
        views.settle(self, status=reduced_status)

    @property
    def last_managers(self) -> Mapping[NodeField, str]:
        """The last writer of each owned field that the scheduler does not own."""
        return {
            field: managers[-1]
            for field, managers in self.field_managers.items()
            if MANAGER not in managers
        }

    def label(self, key: str) -> str:
        return self.metadata.labels.get(key, "")

    def annotation(self, key: str) -> str:
        return self.metadata.annotations.get(key, "")

    @property
    def lease(self) -> NodeLease | MalformedAnnotation | None:
        return _decode_annotation(NodeLease, self.annotation(keys.LEASE_ANNOTATION))

    @property
    def lease_claim(self) -> NodeLease | MalformedAnnotation | None:
        return _decode_annotation(NodeLease, self.annotation(keys.LEASE_CLAIM_ANNOTATION))

    @property
    def record(self) -> NodeRecord | MalformedAnnotation | None:
        return _decode_annotation(NodeRecord, self.annotation(keys.RECORD_ANNOTATION))

    @property
    def validation_pod(self) -> ValidationPod | None:
        """What became of a validation's pod."""
        return validation_pod_of(self.metadata.annotations)

    @property
    def request(self) -> NodeRequest | None:
        text = self.annotation(keys.REQUEST_ANNOTATION)
        return NodeRequest(text) if text else None


def _decode_annotation(kind: type[M], text: str) -> M | MalformedAnnotation | None:
    if not text:
        return None
    try:
        return decode(kind, text.encode())
    except MalformedMessage as error:
        return MalformedAnnotation(str(error))


def _field_managers(entries: Sequence[views.ManagedFields]) -> dict[NodeField, tuple[str, ...]]:
    """Read the managers of each field; a server has an entry per manager, verb, subresource."""
    found: dict[NodeField, list[str]] = {}
    for entry in sorted(entries, key=lambda entry: entry.time):
        if entry.subresource or not _may_own_fields(entry):
            continue
        for field in _owned_fields(owned_fields(entry)):
            managers = found.setdefault(field, [])
            if entry.manager in managers:
                managers.remove(entry.manager)
            managers.append(entry.manager)
    return {field: tuple(managers) for field, managers in found.items()}


_PARTS_OF_KEYS: Final = (
    b"gpu-driver-upgrade",
    b"sluice.dev/",
    b"unschedulable",
    b"mig.config.state",
)


def _may_own_fields(entry: views.ManagedFields) -> bool:
    # Most entries belong to kubelets and controllers; decoding them would be the main cost.
    text = bytes(entry.fields_v1)
    return entry.manager == MANAGER or any(part in text for part in _PARTS_OF_KEYS)


def _owned_fields(owned: OwnedFields) -> Iterator[NodeField]:
    if "f:unschedulable" in owned.spec:
        yield NodeField.CORDON
    if "f:taints" in owned.spec:
        yield NodeField.TAINTS
    for field, key in _MANAGED_LABELS.items():
        if key in owned.metadata.labels:
            yield field
    for field, key in _MANAGED_ANNOTATIONS.items():
        if key in owned.metadata.annotations:
            yield field


class PodClaim(views.View, frozen=True, kw_only=True):
    """A resource claim of a pod: by name, or made from a template."""

    name: str
    resource_claim_name: str | None = None


class PodSpec(views.PodSpec, frozen=True, kw_only=True):
    volumes: tuple[Volume, ...] = ()
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    affinity: dict[str, Any] | None = None
    resource_claims: tuple[PodClaim, ...] = ()


class PodStatus(views.PodStatus, frozen=True, kw_only=True):
    start_time: str = ""
    resource_claim_statuses: tuple[PodClaim, ...] = ()
    """The claims made from templates; without a name: none was needed."""


class Pod(Unmanaged, frozen=True, kw_only=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ResourceClaim(claims.ResourceClaim, frozen=True, kw_only=True):
    """Devices for pods, once they are allocated."""

    def __post_init__(self) -> None:
        keep_identity(self)

    @property
    def has_gpu(self) -> bool | None:
        """Whether it has devices of our driver, other than for monitoring; None: not allocated."""
        if not self.is_allocated:
            return None
        return any(not each.admin_access for each in self.devices_of(GPU_CLAIM_DRIVERS))


class DaemonSet(Unmanaged, views.DaemonSet, frozen=True, kw_only=True):
    """A DaemonSet of driver pods."""


class ConfigMap(views.Object, frozen=True, kw_only=True):
    """A ConfigMap, reduced to what the scheduler reads: MIG configurations, or artefacts."""

    data: dict[str, str] | None = None

    def __post_init__(self) -> None:
        data = self.data or {}
        kept = {CONFIG_KEY: data[CONFIG_KEY]} if CONFIG_KEY in data else None
        if self.metadata.name == artefacts.CONFIG_MAP:
            kept = data
        keep_identity(self)
        views.settle(self, data=kept)


class Rollout(Unmanaged, frozen=True, kw_only=True):
    spec: rollout.RolloutSpec = rollout.RolloutSpec()
    status: rollout.RolloutStatus = rollout.RolloutStatus()
    brake_author: Author | None = None
    """None: no program is recorded, also where the field was removed."""
    release_author: Author | None = None

    def __post_init__(self) -> None:
        views.settle(
            self,
            brake_author=brake_author(self.metadata),
            release_author=release_author(self.metadata),
        )
        super().__post_init__()


class Policy(CustomObject, frozen=True, kw_only=True):
    """A policy, with who wrote a field of it that stops upgrades."""

    auto_upgrade_set_by: str = ""
    """Empty: it is not recorded."""

    def __post_init__(self) -> None:
        owner = last_owner(self.metadata.managed_fields, _has_auto_upgrade)
        author = "" if owner is None else excerpt(user_of(owner.manager), _MAX_AUTHOR)
        views.settle(self, auto_upgrade_set_by=author)
        super().__post_init__()


def _has_auto_upgrade(owned: OwnedFields) -> bool:
    sections = owned.spec, _section(owned.spec, "f:driver")
    return any("f:autoUpgrade" in _section(each, "f:upgradePolicy") for each in sections)


def _section(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = fields.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


NODES: Final = resources.NODES.viewed_as(Node)
PODS: Final = resources.PODS.viewed_as(Pod)
RESOURCE_CLAIMS: Final = claims.RESOURCE_CLAIMS.viewed_as(ResourceClaim)
CONFIG_MAPS: Final = resources.CONFIG_MAPS.viewed_as(ConfigMap)
DAEMON_SETS: Final = resources.DAEMON_SETS.viewed_as(DaemonSet)
ROLLOUTS: Final = custom_resource(ROLLOUT, Rollout)
GPU_CLUSTERS: Final = custom_resource(GPU_CLUSTER, views.Object, optional=True)
POLICIES: Final = custom_resources(POLICY_KINDS, Policy)
"""The policy resources by kind."""
