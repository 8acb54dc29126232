"""The writes of this role: each is counted, and its answer enters the cache at once.

Each is one request to one Node that is still as it was decided on. When it is right to make it is
not known here.
"""

from collections.abc import Awaitable
from typing import Final

from libs.kube.client import Kube, Preconditions
from libs.kube.errors import Conflict, KubeError
from services.discovery.cluster.decide import ApplyLabels, LabelChange
from services.discovery.cluster.informers import Informers
from services.discovery.cluster.metrics import DiscoveryMetrics
from services.discovery.cluster.resources import NODES, Node

TIMEOUT: Final = 3.0
"""Seconds for a write."""


class Writes:
    """Writes as one leader."""

    def __init__(self, kube: Kube, *, informers: Informers, metrics: DiscoveryMetrics) -> None:
        self._kube = kube
        self._nodes = informers.nodes.cache
        self._meters = metrics

    async def write(self, node: Node, change: LabelChange) -> None:
        """Make it so; after a conflict the Node is known as it is now."""
        try:
            with self._meters.count_write():
                view = await self._sent(node, change)
        except Conflict:
            await self._look_again(node)
            raise
        self._nodes.record_write(view)

    def _sent(self, node: Node, change: LabelChange) -> Awaitable[Node]:
        metadata = node.metadata
        if isinstance(change, ApplyLabels):
            return self._kube.apply(
                NODES,
                {"metadata": {"name": metadata.name, "labels": dict(change.labels)}},
                force=True,
                preconditions=Preconditions(
                    uid=metadata.uid, resource_version=metadata.resource_version
                ),
                within=TIMEOUT,
            )
        return self._kube.merge(
            NODES,
            metadata.name,
            {"metadata": {"uid": metadata.uid, "labels": dict.fromkeys(change.keys)}},
            resource_version=metadata.resource_version,
            within=TIMEOUT,
        )

    async def _look_again(self, node: Node) -> None:
        try:
            self._nodes.record_write(
                await self._kube.get(NODES, node.metadata.name, within=TIMEOUT)
            )
        except KubeError:
            return  # the watch will tell
