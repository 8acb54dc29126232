"""Which pool a node is in: as its record says, its owner, or the policies that select it. Pure.

Policies that nobody could read yet say nothing: such a node is in no pool as yet.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import RECORD_ANNOTATION, NodeRecord
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER
from libs.policy.manifests import PolicyMetadata, parse_object
from libs.policy.owners import NodeLabels
from libs.policy.pools import assemble_pools, pool_key
from libs.policy.validation import OWNER_LABEL


class NodeMetadata(Protocol):
    """What of a Node's metadata says its pool."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def annotations(self) -> Mapping[str, str]: ...


class NodeWithPool(Protocol):
    """A Node, as far as its pool is said on it."""

    @property
    def metadata(self) -> NodeMetadata: ...
    @property
    def pool(self) -> str: ...


def recorded_pool(metadata: NodeMetadata) -> str:
    """As the node's record says it; where there is none yet, by the owner that selected it."""
    try:
        record = decode(NodeRecord, metadata.annotations.get(RECORD_ANNOTATION, "").encode())
    except MalformedMessage:
        record = None
    if record is not None and record.pool:
        return record.pool
    owner = metadata.labels.get(OWNER_LABEL, "")
    return pool_key(NVIDIA_DRIVER.name, owner) if owner else ""


def nodes_without_recorded_pool(nodes: Iterable[NodeWithPool]) -> list[NodeLabels]:
    """Those of which neither record nor owner says the pool."""
    return [
        NodeLabels(name=one.metadata.name, labels=one.metadata.labels)
        for one in nodes
        if not one.pool
    ]


class StoredPolicy(Protocol):
    """A policy, as people wrote it."""

    @property
    def metadata(self) -> PolicyMetadata: ...
    @property
    def spec(self) -> Any: ...


class PoolIndex:
    """Brings policies and nodes together when somebody asks, and again once either has changed."""

    def __init__(
        self,
        *,
        policies: Mapping[str, Iterable[StoredPolicy]],
        nodes: Callable[[], Iterable[NodeLabels]],
    ) -> None:
        """`policies` by kind; `nodes` are those of which nothing else says their pool."""
        self._policies = policies
        self._nodes = nodes
        self._owners: Mapping[str, str] | None = None

    def pool_of(self, node: str) -> str:
        """The key of the pool of one of these nodes; empty: none is known."""
        if self._owners is None:
            reads = [
                parse_object(kind, metadata=one.metadata, spec=one.spec)
                for kind, found in self._policies.items()
                for one in found
            ]
            self._owners = assemble_pools(reads, self._nodes()).owners
        return self._owners.get(node, "")

    def invalidate(self, *_: object) -> None:
        """A policy or a node is another than it was."""
        self._owners = None
