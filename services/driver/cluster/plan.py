"""From everything that is there to everything that is wanted, at one moment. Pure.

What is wanted is `libs.policy`'s to say; what differs from it, and what is done then, is not
decided here.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from libs.contracts.message import Unreadable, decode
from libs.contracts.node import DRIVER_LABEL, SKIP_LABEL, STATE_LABEL, Record, UpgradeState
from libs.policy.checks import PRESENT_LABEL
from libs.policy.digest import target
from libs.policy.observed import Observation, ObservedDaemonSet, ObservedNode, Trouble
from libs.policy.owners import NodeFacts
from libs.policy.pools import Pools, pools
from libs.policy.reading import read_object
from libs.policy.rendering.operands import operands
from libs.policy.rendering.rendered import Rendered
from libs.policy.rendering.settings import Settings
from libs.policy.status import Status, standing
from libs.policy.variants import placed
from services.driver.cluster import built
from services.driver.cluster.things import DaemonSet, Node, PolicyObject

_FEATURES: Final = "feature.node.kubernetes.io/"


class Key(NamedTuple):
    """An object that is looked at by itself."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class Sight(msgspec.Struct, frozen=True, kw_only=True):
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
    troubles: tuple[Trouble, ...] = ()
    refused: Mapping[str, str] = {}
    """By kind and name, `DaemonSet/a`: why the API server did not take it."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted."""

    pools: Pools
    objects: Mapping[Key, Rendered]
    statuses: Mapping[Key, Status]
    targets: Mapping[str, str]
    """By the key of each pool that is not held: the target of its nodes."""
    gpu_nodes: int = 0
    has_features: bool = False
    """Whether any node has labels of node feature discovery."""
    decides: bool = False
    """Whether a policy says which operands the cluster is to have: then others may go."""


def planned(sight: Sight, settings: Settings) -> Plan:
    """Everything that follows."""
    reads = [
        read_object(kind, metadata=one.metadata, spec=one.spec)
        for kind, found in sight.policies.items()
        for one in found
    ]
    facts = [
        NodeFacts(name=one.metadata.name, uid=one.metadata.uid, labels=one.metadata.labels)
        for one in sight.nodes
    ]
    found = pools(reads, facts, gpu_clusters=tuple(sight.gpu_clusters))
    placement = placed(found, facts)
    rendering = built.built(
        operands(found, placement, settings, config_maps=dict(sight.config_maps))
    )
    seen = _observation(sight, found)
    statuses = [built.told(one, found) for one in standing(found, placement, rendering, seen)]
    return Plan(
        pools=found,
        objects={Key(made.kind, made.name): made for made in rendering.objects},
        statuses={Key(one.kind, one.name): one for one in statuses},
        targets={pool.key: target(pool.driver) for pool in found.pools if not pool.held},
        gpu_nodes=sum(one.metadata.labels.get(PRESENT_LABEL) == "true" for one in sight.nodes),
        has_features=seen.feature_labels,
        decides=found.cluster is not None and not rendering.held,
    )


def _observation(sight: Sight, found: Pools) -> Observation:
    return Observation(
        daemon_sets={one.metadata.name: _observed(one) for one in sight.daemon_sets},
        nodes={
            one.metadata.name: _node(one)
            for one in sight.nodes
            if one.metadata.name in found.owners
        },
        troubles=sight.troubles,
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
        return decode(Record, record.encode()).cause
    except Unreadable as error:
        return f"its record cannot be read: {error}"
