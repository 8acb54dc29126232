"""The writes of this role: each is counted, and its answer enters the cache at once.

Each is one request to one Node that is still as it was decided on. When it is right to make it is
not known here.
"""

from collections.abc import Awaitable
from typing import Final

from libs.kube.client import Guard, Kube
from libs.kube.errors import Conflict, KubeError
from services.discovery.cluster.deciding import Apply, Change
from services.discovery.cluster.meters import DiscoveryMeters
from services.discovery.cluster.sources import Sources
from services.discovery.cluster.things import NODES, Node

WITHIN: Final = 3.0
"""Seconds for a write."""


class Hands:
    """Writes as one leader."""

    def __init__(self, kube: Kube, *, sources: Sources, meters: DiscoveryMeters) -> None:
        self._kube = kube
        self._nodes = sources.nodes.cache
        self._meters = meters

    async def write(self, node: Node, change: Change) -> None:
        """Make it so; after a conflict the Node is known as it is now."""
        try:
            with self._meters.counted():
                view = await self._sent(node, change)
        except Conflict:
            await self._look_again(node)
            raise
        self._nodes.learn(view)

    def _sent(self, node: Node, change: Change) -> Awaitable[Node]:
        metadata = node.metadata
        if isinstance(change, Apply):
            return self._kube.apply(
                NODES,
                {"metadata": {"name": metadata.name, "labels": dict(change.labels)}},
                force=True,
                guard=Guard(uid=metadata.uid, resource_version=metadata.resource_version),
                within=WITHIN,
            )
        return self._kube.merge(
            NODES,
            metadata.name,
            {"metadata": {"uid": metadata.uid, "labels": dict.fromkeys(change.keys)}},
            resource_version=metadata.resource_version,
            within=WITHIN,
        )

    async def _look_again(self, node: Node) -> None:
        try:
            self._nodes.learn(await self._kube.get(NODES, node.metadata.name, within=WITHIN))
        except KubeError:
            return  # the watch will tell
