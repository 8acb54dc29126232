"""The objects that this role reads.

A cluster may have thousands of Nodes: fields that this role does not need are dropped while a
Node is decoded. The owners of its labels come from its managedFields.
"""

from collections.abc import Iterator, Mapping, Sequence
from sys import intern
from typing import Final

from libs.contracts.node import RECORD_ANNOTATION
from libs.kube import resources, views
from libs.kube.client import Kube
from libs.kube.ownership import owned_fields
from libs.kube.resources import (
    CustomObject,
    custom_resource,
    custom_resources,
)
from libs.kube.views.lean import keep_metadata
from libs.policy.kinds import GPU_CLUSTER, POLICY_KINDS
from libs.runtime.env import Env
from services.cluster_role import LeadingInformers
from services.discovery.cluster.device_health import GPU_HEALTHY
from services.discovery.cluster.devices import BY_NODE, DEVICES
from services.discovery.cluster.label_values import FEATURES, describes
from services.discovery.cluster.sharing import ConfigMap

MANAGER: Final = "sluice-discovery"
"""The field manager of this role's writes."""

CLAIM_SUFFIX: Final = "nfd.node.kubernetes.io/feature-labels"
"""Suffix of the annotation in which a feature discovery lists its labels."""
_NVIDIA: Final = "nvidia.com/"


class Node(views.Object, frozen=True, kw_only=True):
    """A Node with its labels, and the owners of those that could be ours."""

    status: views.NodeStatus = views.NodeStatus()
    ours: frozenset[str] = frozenset()
    """Labels whose present value we applied."""
    others: frozenset[str] = frozenset()
    """Labels that another manager owns, alone or together with us."""
    claimed: frozenset[str] = frozenset()
    """Labels that another feature discovery lists as its own."""

    def __post_init__(self) -> None:
        metadata = self.metadata
        ours, others = self.ours, self.others
        if metadata.managed_fields:
            ours, others = _owned(metadata.managed_fields)
        claimed = _claimed(metadata.annotations) or self.claimed
        ours_alone = tuple(each for each in self.status.conditions if each.type == GPU_HEALTHY)
        status = views.NodeStatus(node_info=self.status.node_info, conditions=ours_alone)
        keep_metadata(self, annotations=frozenset((RECORD_ANNOTATION,)))
        views.settle(self, status=status, ours=ours, others=others, claimed=claimed)

    @property
    def record(self) -> str:
        """The encoded node record; empty if there is none."""
        return self.metadata.annotations.get(RECORD_ANNOTATION, "")

    @property
    def gpu_health(self) -> views.Condition | None:
        """Our condition of the Node."""
        return next(iter(self.status.conditions), None)

    @property
    def relevant(self) -> object:
        """Everything that a decision on labels depends on; the rest are a kubelet's heartbeats."""
        metadata = self.metadata
        boot_id = self.status.node_info.boot_id
        owners = (self.ours, self.others, self.claimed)
        return metadata.uid, metadata.labels, self.record, boot_id, owners

    @property
    def relevant_to_devices(self) -> object:
        """Everything that a decision on Devices and the condition depends on."""
        return self.metadata.uid, self.status.node_info.boot_id, self.gpu_health


NODES: Final = resources.NODES.viewed_as(Node)
CONFIGS: Final = resources.CONFIG_MAPS.viewed_as(ConfigMap)
GPU_CLUSTERS: Final = custom_resource(GPU_CLUSTER, views.Object, optional=True)
POLICIES: Final = custom_resources(POLICY_KINDS, CustomObject)
"""By kind."""


def _owned(entries: Sequence[views.ManagedFields]) -> tuple[frozenset[str], frozenset[str]]:
    ours: set[str] = set()
    others: set[str] = set()
    for entry in entries:
        if not entry.subresource:
            is_ours = entry.manager == MANAGER and entry.operation == "Apply"
            (ours if is_ours else others).update(_labels(entry))
    return frozenset(ours), frozenset(others)


def _labels(entry: views.ManagedFields) -> Iterator[str]:
    fields = bytes(entry.fields_v1)
    # Most entries are of kubelets and controllers; decoding them would dominate the cost.
    if b'"f:labels"' not in fields:
        return
    for field in owned_fields(entry).metadata.labels:
        key = field.removeprefix("f:")
        if describes(key):
            yield intern(key)


def _claimed(annotations: Mapping[str, str]) -> frozenset[str]:
    """Return the labels listed in annotations, whose keys a named instance prefixes."""
    return frozenset(
        intern(name if "/" in name else f"{FEATURES}{name}")
        for key, listed in annotations.items()
        if key.endswith(CLAIM_SUFFIX)
        for name in listed.split(",")
        if name
    )


class Informers(LeadingInformers):
    def __init__(self, kube: Kube, *, namespace: str, env: Env) -> None:
        """`namespace` is that of the operands, with the configurations of the device plugin."""
        super().__init__(kube, env=env)
        self.nodes = self.add(NODES)
        self.devices = self.add(DEVICES, indexes={BY_NODE: lambda device: (device.node,)})
        self.policies = self.add_each(POLICIES)
        self.gpu_clusters = self.add(GPU_CLUSTERS)
        self.configs = self.add(CONFIGS, namespace=namespace)
        self.watch_gpu_operator()
