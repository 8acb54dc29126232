"""The writes of this role: each is counted, and the response enters the cache at once.

Each is one request, which fails if the Node changed since the decision.
"""

from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any, Final

from prometheus_client import Gauge

from libs.kube.client import Kube, Preconditions
from libs.kube.errors import Conflict, KubeError
from libs.kube.views import Condition, format_time
from libs.runtime.clock import Clock
from libs.runtime.metrics import Metrics
from services.discovery.cluster.decide import ApplyLabels, LabelChange
from services.discovery.cluster.device_decide import SetCondition
from services.discovery.cluster.device_health import GPU_HEALTHY
from services.discovery.cluster.resources import NODES, Informers, Node


class NodeGauge:
    """A number of each node, exported as their sum. Zeros are not kept."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._by_node: dict[str, int] = {}

    def set(self, name: str, count: int) -> bool:
        """Set the number of a node; return whether it changed."""
        before = self._by_node.pop(name, 0)
        if count:
            self._by_node[name] = count
        self._gauge.inc(count - before)
        return count != before


class DiscoveryMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._writes = metrics.counter(
            "sluice_discovery_api_writes",
            "Writes to Nodes, by outcome.",
            outcome=("written", "conflict", "failed"),
        )
        self._devices = metrics.counter(
            "sluice_discovery_device_writes",
            "Writes to Devices, by outcome.",
            outcome=("written", "failed"),
        )
        foreign = metrics.gauge(
            "sluice_discovery_labels_left",
            "Labels of nodes that differ from the facts and belong to another field manager.",
        )
        values = metrics.gauge(
            "sluice_discovery_refused_values",
            "Values in reports about GPUs that cannot be true and were left out.",
        )
        labels = metrics.gauge(
            "sluice_discovery_refused_labels",
            "Labels of nodes whose reported values cannot be written, and lines of feature files"
            " that were left out.",
        )
        self._foreign, self._values, self._labels = map(NodeGauge, (foreign, values, labels))

    def set_foreign(self, name: str, count: int) -> None:
        """Set the number of wrong labels of a node that belong to another manager."""
        self._foreign.set(name, count)

    def set_refused(self, name: str, count: int) -> bool:
        """Set the number of refused values of a node; return whether it changed."""
        return self._values.set(name, count)

    def set_refused_labels(self, name: str, count: int) -> bool:
        """Set the number of refused labels of a node; return whether it changed."""
        return self._labels.set(name, count)

    @contextmanager
    def count_device_write(self) -> Generator[None]:
        try:
            yield
        except KubeError:
            self._devices.labels("failed").inc()
            raise
        self._devices.labels("written").inc()

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
    def __init__(
        self, kube: Kube, *, informers: Informers, metrics: DiscoveryMetrics, clock: Clock
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._nodes = informers.nodes.cache
        self._metrics = metrics

    async def write(self, node: Node, change: LabelChange) -> None:
        """Write the labels; after a conflict, read the Node into the cache again and raise."""
        await self._write(node, self._request(node, change))

    async def set_condition(self, node: Node, change: SetCondition) -> None:
        """Set or remove our condition; a conflict is treated as that of labels."""
        if change.condition is None:
            await self._write(node, self._remove_condition(node))
        else:
            await self._write(node, self._apply_condition(node, change.condition))

    async def _write(self, node: Node, request: Coroutine[Any, Any, Node]) -> None:
        try:
            with self._metrics.count_write():
                view = await request
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
                preconditions=_preconditions(node),
                within=TIMEOUT,
            )
        return await self._kube.merge(
            NODES,
            metadata.name,
            {"metadata": {"uid": metadata.uid, "labels": dict.fromkeys(change.keys)}},
            resource_version=metadata.resource_version,
            within=TIMEOUT,
        )

    async def _apply_condition(self, node: Node, condition: Condition) -> Node:
        # Always the same fields: none of them is ever removed by an apply.
        fields = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": condition.last_transition_time,
            "lastHeartbeatTime": format_time(self._clock.now()),
        }
        return await self._kube.apply(
            NODES,
            {"metadata": {"name": node.metadata.name}, "status": {"conditions": [fields]}},
            force=True,
            preconditions=_preconditions(node),
            subresource="status",
            within=TIMEOUT,
        )

    async def _remove_condition(self, node: Node) -> Node:
        # An apply without the condition would also remove what no manager owns of the others.
        removed = {"$patch": "delete", "type": GPU_HEALTHY}
        return await self._kube.merge(
            NODES,
            node.metadata.name,
            {"metadata": {"uid": node.metadata.uid}, "status": {"conditions": [removed]}},
            resource_version=node.metadata.resource_version,
            subresource="status",
            strategic=True,
            within=TIMEOUT,
        )


def _preconditions(node: Node) -> Preconditions:
    metadata = node.metadata
    return Preconditions(uid=metadata.uid, resource_version=metadata.resource_version)
