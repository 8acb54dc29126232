"""Metrics of the proofs: for nodes under the GPU Operator's names, for pools under our own."""

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.validator.cluster.proofs import FleetProofs, NodeProof, ProofStatus


class ProofCollector(Collector):
    """Builds the metrics at each scrape, so that deleted nodes have none."""

    def __init__(self, proofs: FleetProofs) -> None:
        self._proofs = proofs

    def collect(self) -> Iterator[Metric]:
        proofs = list(self._proofs.all())
        yield from _node_metrics(proofs)
        yield from _pool_metrics(proofs)
        yield _failure_metric(proofs)


def _node_metrics(proofs: Sequence[NodeProof]) -> Iterator[Metric]:
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
    for proof in proofs:
        is_proven = proof.status is ProofStatus.PROVEN
        validated.add_metric([proof.node], is_proven)
        if is_proven:
            succeeded.add_metric([proof.node], proof.at)
    yield from (validated, succeeded)


def _pool_metrics(proofs: Sequence[NodeProof]) -> Iterator[Metric]:
    nodes = GaugeMetricFamily(
        "sluice_validator_nodes",
        "Nodes of a pool by state of their present boot and driver: proven; failed; or unproven"
        " (no evidence).",
        labels=["pool", "standing"],
    )
    failed = GaugeMetricFamily(
        "sluice_validator_nodes_failed",
        "Nodes of a pool that failed validation, by the first failed step.",
        labels=["pool", "step"],
    )
    counts = Counter((proof.pool, proof.status) for proof in proofs)
    for pool in sorted({proof.pool for proof in proofs}):
        for status in ProofStatus:
            nodes.add_metric([pool, status.value], counts[pool, status])
    steps = Counter((each.pool, each.step) for each in proofs if each.status is ProofStatus.FAILED)
    for (pool, step), count in sorted(steps.items()):
        failed.add_metric([pool, step], count)
    yield from (nodes, failed)


def _failure_metric(proofs: Sequence[NodeProof]) -> Metric:
    reasons = GaugeMetricFamily(
        "sluice_validator_node_failed",
        "Pool, step and reason of a node that failed validation; always 1.",
        labels=["node", "pool", "step", "reason"],
    )
    for proof in proofs:
        if proof.status is ProofStatus.FAILED:
            reasons.add_metric([proof.node, proof.pool, proof.step, proof.reason], 1)
    return reasons
