"""Which pool has a node that no record says it of: as policies select it. Pure.

Policies that nobody could read yet say nothing: such a node is in no pool as yet.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from sluice.policy.owners import NodeFacts
from sluice.policy.pools import pools
from sluice.policy.reading import Named, read_object


class Written(Protocol):
    """A policy, as people wrote it."""

    @property
    def metadata(self) -> Named: ...
    @property
    def spec(self) -> Any: ...


class Belonging:
    """Brings policies and nodes together when somebody asks, and again once either has changed."""

    def __init__(
        self,
        *,
        policies: Mapping[str, Iterable[Written]],
        nodes: Callable[[], Iterable[NodeFacts]],
    ) -> None:
        """`policies` by kind; `nodes` are those of which nothing else says their pool."""
        self._policies = policies
        self._nodes = nodes
        self._owners: Mapping[str, str] | None = None

    def of(self, node: str) -> str:
        """The key of the pool of one of these nodes; empty: none is known."""
        if self._owners is None:
            reads = [
                read_object(kind, metadata=one.metadata, spec=one.spec)
                for kind, found in self._policies.items()
                for one in found
            ]
            self._owners = pools(reads, self._nodes()).owners
        return self._owners.get(node, "")

    def forget(self, *_: object) -> None:
        """A policy or a node is another than it was."""
        self._owners = None
