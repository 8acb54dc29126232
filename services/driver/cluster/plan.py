"""Plans the wanted objects and statuses from a snapshot of the cluster. Pure."""

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
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class ClusterSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    policies: Mapping[str, Collection[PolicyObject]]
    """By kind."""
    nodes: Collection[Node]
    gpu_clusters: Collection[str]
    """By name."""
    config_maps: Mapping[str, Collection[str]]
    """The keys of each, by its name."""
    daemon_sets: Collection[DaemonSet]
    """Only ours."""
    pod_problems: tuple[PodProblem, ...] = ()
    refused: Mapping[str, str] = {}
    """By kind and name, `DaemonSet/a`: why the API server refused it."""


class OperandPlan(msgspec.Struct, frozen=True, kw_only=True):
    pools: Pools
    objects: Mapping[ObjectKey, RenderedObject]
    statuses: Mapping[ObjectKey, PolicyStatus]
    targets: Mapping[str, str]
    """By the key of each pool that is not held: the target of its nodes."""
    gpu_nodes: int = 0
    has_features: bool = False
    """Some node has labels of node feature discovery."""
    decides: bool = False
    """A policy says which operands the cluster should have: others may be deleted."""


def make_plan(snapshot: ClusterSnapshot, settings: RenderSettings) -> OperandPlan:
    parsed = [
        parse_object(kind, metadata=policy.metadata, spec=policy.spec)
        for kind, policies in snapshot.policies.items()
        for policy in policies
    ]
    nodes = [
        NodeLabels(name=node.metadata.name, uid=node.metadata.uid, labels=node.metadata.labels)
        for node in snapshot.nodes
    ]
    pools = assemble_pools(parsed, nodes, gpu_clusters=tuple(snapshot.gpu_clusters))
    placement = assign_variants(pools, nodes)
    rendering = device_plugin.without_device_plugin(
        render_operands(pools, placement, settings, config_maps=dict(snapshot.config_maps))
    )
    observation = _observe(snapshot, pools)
    statuses = [
        device_plugin.with_condition(status, pools)
        for status in policy_statuses(pools, placement, rendering, observation)
    ]
    return OperandPlan(
        pools=pools,
        objects={ObjectKey(each.kind, each.name): each for each in rendering.objects},
        statuses={ObjectKey(status.kind, status.name): status for status in statuses},
        targets={pool.key: target_digest(pool.driver) for pool in pools.pools if not pool.held},
        gpu_nodes=sum(node.labels.get(PRESENT_LABEL) == "true" for node in nodes),
        has_features=observation.feature_labels,
        decides=pools.cluster is not None and not rendering.is_held,
    )


def _observe(snapshot: ClusterSnapshot, pools: Pools) -> Observation:
    return Observation(
        daemon_sets={
            each.metadata.name: _observe_daemon_set(each) for each in snapshot.daemon_sets
        },
        nodes={
            node.metadata.name: _observe_node(node)
            for node in snapshot.nodes
            if node.metadata.name in pools.owners
        },
        pod_problems=snapshot.pod_problems,
        refused=snapshot.refused,
        feature_labels=any(
            key.startswith(_FEATURES) for node in snapshot.nodes for key in node.metadata.labels
        ),
    )


def _observe_daemon_set(daemon_set: DaemonSet) -> ObservedDaemonSet:
    status = daemon_set.status
    return ObservedDaemonSet(
        generation=daemon_set.metadata.generation,
        observed_generation=status.observed_generation,
        desired=status.desired_number_scheduled,
        updated=status.updated_number_scheduled,
        available=status.number_available,
    )


def _observe_node(node: Node) -> ObservedNode:
    labels = node.metadata.labels
    state = labels.get(STATE_LABEL, "")
    return ObservedNode(
        state=state,
        label=labels.get(DRIVER_LABEL, ""),
        cause=_failure_cause(node.record) if state == UpgradeState.UPGRADE_FAILED else "",
        skipped=labels.get(SKIP_LABEL) == "true",
    )


def _failure_cause(record: str) -> str:
    if not record:
        return ""
    try:
        return decode(NodeRecord, record.encode()).cause
    except MalformedMessage as error:
        return f"the node record is malformed: {error}"
