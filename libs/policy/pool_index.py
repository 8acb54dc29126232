"""Find the pool of a node: from its record, else its owner label, else the policies.

A node is in no pool while its policy has not been read yet.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import RECORD_ANNOTATION, NodeRecord
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER
from libs.policy.manifests import PolicyMetadata, parse_object
from libs.policy.owners import NodeLabels, is_pre_installed
from libs.policy.pool import pool_key, pre_installed_key
from libs.policy.pools import assemble_pools
from libs.policy.validation import OWNER_LABEL


class NodeMetadata(Protocol):
    """The metadata fields of a Node from which its pool is read."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def annotations(self) -> Mapping[str, str]: ...


class NodeWithPool(Protocol):
    """A Node and the pool recorded on it, if any."""

    @property
    def metadata(self) -> NodeMetadata: ...
    @property
    def pool(self) -> str: ...


def recorded_pool(metadata: NodeMetadata) -> str:
    """Return the pool named by the node's record, else by its owner label, else ""."""
    try:
        record = decode(NodeRecord, metadata.annotations.get(RECORD_ANNOTATION, "").encode())
    except MalformedMessage:
        record = None
    if record is not None and record.pool:
        return record.pool
    owner = metadata.labels.get(OWNER_LABEL, "")
    if not owner:
        return ""
    key = pool_key(NVIDIA_DRIVER.name, owner)
    return pre_installed_key(key) if is_pre_installed(metadata.labels) else key


def nodes_without_recorded_pool(nodes: Iterable[NodeWithPool]) -> list[NodeLabels]:
    return [
        NodeLabels(name=node.metadata.name, labels=node.metadata.labels)
        for node in nodes
        if not node.pool
    ]


class StoredPolicy(Protocol):
    """A policy object as stored."""

    @property
    def metadata(self) -> PolicyMetadata: ...
    @property
    def spec(self) -> Any: ...


class PoolIndex:
    """Look up pools of nodes that have none recorded; computed lazily until invalidated."""

    def __init__(
        self,
        *,
        policies: Mapping[str, Iterable[StoredPolicy]],
        nodes: Callable[[], Iterable[NodeLabels]],
    ) -> None:
        """`policies` are by kind; `nodes` returns the nodes without a recorded pool."""
        self._policies = policies
        self._nodes = nodes
        self._owners: Mapping[str, str] | None = None

    def pool_of(self, node: str) -> str:
        """Return the key of a node's pool; empty if it is not known."""
        if self._owners is None:
            policies = [
                parse_object(kind, metadata=policy.metadata, spec=policy.spec)
                for kind, stored in self._policies.items()
                for policy in stored
            ]
            self._owners = assemble_pools(policies, self._nodes()).owners
        return self._owners.get(node, "")

    def invalidate(self, *_: object) -> None:
        """Recompute on the next lookup, because a policy or a node changed."""
        self._owners = None
