"""From everything that is there to everything that is wanted, at one moment. Pure.

What is wanted is `libs.policy`'s to say; what differs from it, and what is done then, is not
decided here.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import DRIVER_LABEL, SKIP_LABEL, STATE_LABEL, NodeRecord, UpgradeState
from libs.policy.digest import target_digest
from libs.policy.manifests import parse_object
from libs.policy.observed import Observation, ObservedDaemonSet, ObservedNode, PodProblem
from libs.policy.owners import NodeLabels
from libs.policy.pools import Pools, assemble_pools
from libs.policy.render.operands import render_operands
from libs.policy.render.rendered import RenderedObject
from libs.policy.render.settings import RenderSettings
from libs.policy.status import PolicyStatus, policy_statuses
from libs.policy.validation import PRESENT_LABEL
from libs.policy.variants import assign_variants
from services.driver.cluster import device_plugin
from services.driver.cluster.resources import DaemonSet, Node, PolicyObject

_FEATURES: Final = "feature.node.kubernetes.io/"


class ObjectKey(NamedTuple):
    """An object that is looked at by itself."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class ClusterSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What is there."""

    policies: Mapping[str, Collection[PolicyObject]]
    """By kind."""
    nodes: Collection[Node]
    gpu_clusters: Collection[str]
    """By name."""
    config_maps: Mapping[str, Collection[str]]
    """The keys of each, by its name."""
    daemon_sets: Collection[DaemonSet]
    """Ours."""
    pod_problems: tuple[PodProblem, ...] = ()
    refused: Mapping[str, str] = {}
    """By kind and name, `DaemonSet/a`: why the API server did not take it."""


class OperandPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted."""

    pools: Pools
    objects: Mapping[ObjectKey, RenderedObject]
    statuses: Mapping[ObjectKey, PolicyStatus]
    targets: Mapping[str, str]
    """By the key of each pool that is not held: the target of its nodes."""
    gpu_nodes: int = 0
    has_features: bool = False
    """Whether any node has labels of node feature discovery."""
    decides: bool = False
    """Whether a policy says which operands the cluster is to have: then others may go."""


def make_plan(snapshot: ClusterSnapshot, settings: RenderSettings) -> OperandPlan:
    """Everything that follows."""
    reads = [
        parse_object(kind, metadata=one.metadata, spec=one.spec)
        for kind, found in snapshot.policies.items()
        for one in found
    ]
    facts = [
        NodeLabels(name=one.metadata.name, uid=one.metadata.uid, labels=one.metadata.labels)
        for one in snapshot.nodes
    ]
    found = assemble_pools(reads, facts, gpu_clusters=tuple(snapshot.gpu_clusters))
    placement = assign_variants(found, facts)
    rendering = device_plugin.without_device_plugin(
        render_operands(found, placement, settings, config_maps=dict(snapshot.config_maps))
    )
    seen = _observation(snapshot, found)
    statuses = [
        device_plugin.with_condition(one, found)
        for one in policy_statuses(found, placement, rendering, seen)
    ]
    return OperandPlan(
        pools=found,
        objects={ObjectKey(made.kind, made.name): made for made in rendering.objects},
        statuses={ObjectKey(one.kind, one.name): one for one in statuses},
        targets={pool.key: target_digest(pool.driver) for pool in found.pools if not pool.held},
        gpu_nodes=sum(one.metadata.labels.get(PRESENT_LABEL) == "true" for one in snapshot.nodes),
        has_features=seen.feature_labels,
        decides=found.cluster is not None and not rendering.is_held,
    )


def _observation(sight: ClusterSnapshot, found: Pools) -> Observation:
    return Observation(
        daemon_sets={one.metadata.name: _observed(one) for one in sight.daemon_sets},
        nodes={
            one.metadata.name: _node(one)
            for one in sight.nodes
            if one.metadata.name in found.owners
        },
        pod_problems=sight.pod_problems,
        refused=sight.refused,
        feature_labels=any(
            key.startswith(_FEATURES) for one in sight.nodes for key in one.metadata.labels
        ),
    )


def _observed(one: DaemonSet) -> ObservedDaemonSet:
    status = one.status
    return ObservedDaemonSet(
        generation=one.metadata.generation,
        observed_generation=status.observed_generation,
        desired=status.desired_number_scheduled,
        updated=status.updated_number_scheduled,
        available=status.number_available,
    )


def _node(one: Node) -> ObservedNode:
    labels = one.metadata.labels
    state = labels.get(STATE_LABEL, "")
    return ObservedNode(
        state=state,
        label=labels.get(DRIVER_LABEL, ""),
        cause=_cause(one.record) if state == UpgradeState.UPGRADE_FAILED else "",
        skipped=labels.get(SKIP_LABEL) == "true",
    )


def _cause(record: str) -> str:
    if not record:
        return ""
    try:
        return decode(NodeRecord, record.encode()).cause
    except MalformedMessage as error:
        return f"its record cannot be read: {error}"
