"""The writes of this role: each is counted, and the response enters the cache at once.

Each is one request, which fails if the Node changed since the decision.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from libs.kube.client import Kube, Preconditions
from libs.kube.errors import Conflict, KubeError
from libs.runtime.metrics import Metrics
from services.discovery.cluster.decide import ApplyLabels, LabelChange
from services.discovery.cluster.resources import NODES, Informers, Node


class DiscoveryMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._writes = metrics.counter(
            "sluice_discovery_api_writes",
            "Writes to Nodes, by outcome.",
            outcome=("written", "conflict", "failed"),
        )
        self._foreign = metrics.gauge(
            "sluice_discovery_labels_left",
            "Labels of nodes that differ from the facts and belong to another field manager.",
        )
        self._by_node: dict[str, int] = {}

    def set_foreign(self, name: str, count: int) -> None:
        """Set the number of wrong labels of a node that belong to another manager."""
        before = self._by_node.pop(name, 0)
        if count:
            self._by_node[name] = count
        self._foreign.inc(count - before)

    @contextmanager
    def count_write(self) -> Generator[None]:
        try:
            yield
        except KubeError as error:
            self._writes.labels("conflict" if isinstance(error, Conflict) else "failed").inc()
            raise
        self._writes.labels("written").inc()


TIMEOUT: Final = 3.0
"""Seconds for a write."""


class Writes:
    def __init__(self, kube: Kube, *, informers: Informers, metrics: DiscoveryMetrics) -> None:
        self._kube = kube
        self._nodes = informers.nodes.cache
        self._metrics = metrics

    async def write(self, node: Node, change: LabelChange) -> None:
        """Write the labels; after a conflict, read the Node into the cache again and raise."""
        try:
            with self._metrics.count_write():
                view = await self._request(node, change)
        except Conflict:
            try:
                view = await self._kube.get(NODES, node.metadata.name, within=TIMEOUT)
            except KubeError:
                pass  # the watch will deliver the Node
            else:
                self._nodes.record_write(view)
            raise
        self._nodes.record_write(view)

    async def _request(self, node: Node, change: LabelChange) -> Node:
        metadata = node.metadata
        if isinstance(change, ApplyLabels):
            return await self._kube.apply(
                NODES,
                {"metadata": {"name": metadata.name, "labels": dict(change.labels)}},
                force=True,
                preconditions=Preconditions(
                    uid=metadata.uid, resource_version=metadata.resource_version
                ),
                within=TIMEOUT,
            )
        return await self._kube.merge(
            NODES,
            metadata.name,
            {"metadata": {"uid": metadata.uid, "labels": dict.fromkeys(change.keys)}},
            resource_version=metadata.resource_version,
            within=TIMEOUT,
        )
