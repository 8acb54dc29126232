"""The proof of the fleet on a page: of each node under the names that dashboards know, of pools
under names of our own. Nothing is proven or repaired here.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.validator.cluster.proofs import FleetProofs, NodeProof, ProofStatus


class ProofCollector(Collector):
    """Made anew whenever somebody looks: a node that is gone is not on it."""

    def __init__(self, proofs: FleetProofs) -> None:
        self._gathering = proofs

    def collect(self) -> Iterator[Metric]:
        """All of it."""
        found = list(self._gathering.all())
        yield from _of_nodes(found)
        yield from _of_pools(found)
        yield _reasons(found)


def _of_nodes(found: Sequence[NodeProof]) -> Iterator[Metric]:
    validated = GaugeMetricFamily(
        "gpu_operator_node_driver_validation",
        "1 if the driver was proven in this boot of the node, 0 if not",
        labels=["node"],
    )
    succeeded = GaugeMetricFamily(
        "gpu_operator_node_driver_validation_last_success_ts_seconds",
        "Timestamp (in seconds) of the last success of the driver's validation",
        labels=["node"],
    )
    for one in found:
        proven = one.status is ProofStatus.PROVEN
        validated.add_metric([one.node], proven)
        if proven:
            succeeded.add_metric([one.node], one.at)
    yield from (validated, succeeded)


def _of_pools(found: Sequence[NodeProof]) -> Iterator[Metric]:
    standing = GaugeMetricFamily(
        "sluice_validator_nodes",
        "Nodes of a pool: proven as they are now; failed in that; or unproven, of which nothing"
        " is known as they are now.",
        labels=["pool", "standing"],
    )
    failing = GaugeMetricFamily(
        "sluice_validator_nodes_failed",
        "Nodes of a pool that failed, by the first step that did.",
        labels=["pool", "step"],
    )
    counts = Counter((one.pool, one.status) for one in found)
    for pool in sorted({one.pool for one in found}):
        for each in ProofStatus:
            standing.add_metric([pool, each.value], counts[pool, each])
    steps = Counter((one.pool, one.step) for one in found if one.status is ProofStatus.FAILED)
    for (pool, step), count in sorted(steps.items()):
        failing.add_metric([pool, step], count)
    yield from (standing, failing)


def _reasons(found: Sequence[NodeProof]) -> Metric:
    reasons = GaugeMetricFamily(
        "sluice_validator_node_failed",
        "Of a node that failed: its pool, the step, and why; always 1.",
        labels=["node", "pool", "step", "reason"],
    )
    for one in found:
        if one.status is ProofStatus.FAILED:
            reasons.add_metric([one.node, one.pool, one.step, one.reason], 1)
    return reasons
