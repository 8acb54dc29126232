"""Metrics of this role."""

from collections.abc import Generator
from contextlib import contextmanager

from libs.kube.errors import Conflict, KubeError
from libs.runtime.metrics import Metrics


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
        """Set how many wrong labels of a node belong to another manager."""
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
