"""Judge the evidence of each node, and export the proofs as metrics.

Evidence proves one boot of one Node with the driver that it names, and nothing about another
(docs/invariants.md#i3). Whether a node may return to service is the scheduler's decision.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from libs.bus.reports import ReportCache
from libs.contracts.diagnoses import NOTES, Diagnosis
from libs.contracts.facts import Facts
from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage
from libs.contracts.node import DRIVER_LABEL, ValidationPod, validation_pod_of
from libs.contracts.reports import (
    Evidence,
    Report,
    StateKind,
    ValidationStep,
    named_diagnoses,
    outdated_diagnoses,
)
from libs.kube import resources, views
from libs.kube.cache import Cache
from libs.kube.views.lean import keep_metadata
from libs.policy.pool_index import PoolIndex, recorded_pool
from libs.policy.validation import PRESENT_LABEL

SELECTOR: Final = f"{PRESENT_LABEL}=true"
"""Selects the nodes with GPUs."""

WORKLOAD_STEP: Final = "workload"
"""The step of the pod that confirms a validation."""

UNNAMED_STEP = "unnamed"
"""The step of failed evidence without a failed step."""


class Node(views.Object, frozen=True, kw_only=True):
    """A Node with only what is needed: a cluster may have thousands."""

    status: views.NodeStatus = views.NodeStatus()
    pool: str = ""
    """The key of its recorded pool; if empty, the labels are kept to find the pool by policies."""
    driver: str = ""
    """The label of the driver that the node should run."""
    validation_pod: ValidationPod | None = None
    """What became of the pod that confirms a validation."""

    def __post_init__(self) -> None:
        metadata = self.metadata
        if metadata.labels or metadata.annotations:
            views.settle(
                self,
                pool=recorded_pool(metadata),
                driver=metadata.labels.get(DRIVER_LABEL, ""),
                validation_pod=validation_pod_of(metadata.annotations),
            )
        keep_metadata(self, labels=not self.pool)
        views.settle(self, status=views.NodeStatus(node_info=self.status.node_info))


NODES: Final = resources.NODES.viewed_as(Node)


class ProofStatus(StrEnum):
    PROVEN = "proven"
    FAILED = "failed"
    UNPROVEN = "unproven"
    """There is no evidence for the present boot and driver."""


class NodeProof(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    pool: str
    status: ProofStatus
    step: str = ""
    """The first step that failed."""
    reason: str = ""
    """Why the step failed and what to do, for people."""
    at: float = 0.0
    """Time of the validation, in unix seconds."""
    diagnoses: tuple[Diagnosis, ...] = ()
    """What is wrong with the node, where it has a name, and notes."""


def node_proof(
    node: Node, report: Report | None, driver: Report | None = None, *, pool: str
) -> NodeProof:
    """Judge the last evidence of a node; `driver`: the last facts of its driver agent."""
    found = _evidence_of_boot(node, report)
    evidence = _current_evidence(node, found)
    name = node.metadata.name
    facts = _facts_of_boot(node, driver)
    obstacle, outdated = (facts.obstacle, outdated_diagnoses(facts)) if facts else (None, ())
    diagnoses = named_diagnoses(found, obstacle, outdated)
    if evidence is None:
        return NodeProof(node=name, pool=pool, status=ProofStatus.UNPROVEN, diagnoses=diagnoses)
    pod = node.validation_pod
    if pod is not None and not pod.is_of(node.metadata.uid, evidence.order):
        pod = None
    if evidence.passed and pod is not None and pod.passed is False:
        step = ValidationStep(name=WORKLOAD_STEP, passed=False, message=pod.message)
        evidence = replace(evidence, passed=False, steps=(*evidence.steps, step))
    if evidence.passed:
        return NodeProof(
            node=name, pool=pool, status=ProofStatus.PROVEN, at=evidence.at, diagnoses=diagnoses
        )
    failed = next((step for step in evidence.steps if not step.passed), None)
    return NodeProof(
        node=name,
        pool=pool,
        status=ProofStatus.FAILED,
        step=failed.name if failed else UNNAMED_STEP,
        reason=failed.message if failed else "",
        at=evidence.at,
        diagnoses=diagnoses,
    )


def _facts_of_boot(node: Node, report: Report | None) -> Facts | None:
    """Return the facts if they are of the present boot of the Node."""
    if report is None or not _is_of(node, report):
        return None
    facts = report.open()
    return facts if isinstance(facts, Facts) else None


def _is_of(node: Node, report: Report) -> bool:
    boot = node.metadata.uid, node.status.node_info.boot_id
    return (report.node_uid, report.boot_id) == boot


def _current_evidence(node: Node, evidence: Evidence | None) -> Evidence | None:
    """Return the evidence if it is of a validation of the driver that the Node should run."""
    is_current = evidence is not None and evidence.was_asked and evidence.label == node.driver
    return evidence if is_current else None


def _evidence_of_boot(node: Node, report: Report | None) -> Evidence | None:
    """Return the evidence if it names the Node and its boot."""
    if report is None or not _is_of(node, report):
        return None
    evidence = report.open()
    if not isinstance(evidence, Evidence):
        return None
    boot = node.metadata.uid, node.status.node_info.boot_id
    return evidence if (evidence.node_uid, evidence.boot_id) == boot else None


class FleetProofs:
    """The proofs of all Nodes in a cache."""

    def __init__(self, nodes: Cache[Node], reports: ReportCache, *, pool_index: PoolIndex) -> None:
        self._nodes = nodes
        self._pool_index = pool_index
        self._reports = reports

    def all(self) -> Iterator[NodeProof]:
        """Yield the proofs by name of node; a malformed report proves nothing."""
        for node in sorted(self._nodes, key=lambda node: node.metadata.name):
            name = node.metadata.name
            report = self._reports.get(name, Writer.VALIDATOR, StateKind.EVIDENCE)
            driver = self._reports.get(name, Writer.DRIVER, StateKind.FACTS)
            pool = node.pool or self._pool_index.pool_of(name)
            try:
                yield node_proof(node, report, driver, pool=pool)
            except MalformedMessage:
                yield node_proof(node, None, pool=pool)


class ProofCollector(Collector):
    """Builds the metrics at each scrape, so that deleted nodes have none."""

    def __init__(self, proofs: FleetProofs) -> None:
        self._proofs = proofs

    def collect(self) -> Iterator[Metric]:
        proofs = list(self._proofs.all())
        yield from _node_metrics(proofs)
        yield from _pool_metrics(proofs)
        yield _failure_metric(proofs)
        yield _diagnosis_metric(proofs)


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


def _diagnosis_metric(proofs: Sequence[NodeProof]) -> Metric:
    diagnoses = GaugeMetricFamily(
        "sluice_validator_node_diagnosis",
        "Named diagnosis of a node, from its evidence or its driver agent; always 1. Severity:"
        " failure, or note.",
        labels=["node", "pool", "diagnosis", "severity"],
    )
    for proof in proofs:
        for each in proof.diagnoses:
            severity = "note" if each in NOTES else "failure"
            diagnoses.add_metric([proof.node, proof.pool, each.value, severity], 1)
    return diagnoses
