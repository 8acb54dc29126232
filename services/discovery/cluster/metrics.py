"""What is measured of this role."""

from collections.abc import Generator
from contextlib import contextmanager

from libs.kube.errors import Conflict, KubeError
from libs.runtime.metrics import Metrics


class DiscoveryMetrics:
    """Those of one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._writes = metrics.counter(
            "sluice_discovery_api_writes",
            "Requests that write to a Node, by how they ended.",
            outcome=("written", "conflict", "failed"),
        )
        self._left = metrics.gauge(
            "sluice_discovery_labels_left",
            "Labels of nodes that are not what their facts say, and that somebody else writes.",
        )
        self._by_node: dict[str, int] = {}

    def set_foreign(self, name: str, count: int) -> None:
        """So many labels of this node are somebody else's to mend."""
        before = self._by_node.pop(name, 0)
        if count:
            self._by_node[name] = count
        self._left.inc(count - before)

    @contextmanager
    def count_write(self) -> Generator[None]:
        """One write; without an answer it counts as failed."""
        try:
            yield
        except KubeError as error:
            self._writes.labels("conflict" if isinstance(error, Conflict) else "failed").inc()
            raise
        self._writes.labels("written").inc()
