"""What the evidence of a node is worth now. Pure.

Evidence proves one boot of one Node, with the driver that it names (docs/invariants.md#i3): of
another one it proves nothing. Whether a node may return to service is not decided by this; the
scheduler asks more.
"""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from libs.bus.reports import ReportCache
from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage
from libs.contracts.reports import Evidence, Report, StateKind
from libs.kube.cache import Cache
from libs.policy.pool_index import PoolIndex
from services.validator.cluster.resources import Node

UNNAMED_STEP = "unnamed"
"""The step of evidence that failed, and does not say where."""


class ProofStatus(StrEnum):
    """Where a node stands."""

    PROVEN = "proven"
    FAILED = "failed"
    UNPROVEN = "unproven"
    """Nothing was proven of it as it is now."""


class NodeProof(msgspec.Struct, frozen=True, kw_only=True):
    """Of one node."""

    node: str
    pool: str
    status: ProofStatus
    step: str = ""
    """The first step that failed."""
    reason: str = ""
    """What was wrong there and what to do, for a person."""
    at: float = 0.0
    """When it was validated, in unix seconds."""


def node_proof(node: Node, report: Report | None, *, pool: str) -> NodeProof:
    """Of a node of this pool, with the last evidence that anybody has of it."""
    evidence = _evidence(node, report)
    name = node.metadata.name
    if evidence is None:
        return NodeProof(node=name, pool=pool, status=ProofStatus.UNPROVEN)
    if evidence.passed:
        return NodeProof(node=name, pool=pool, status=ProofStatus.PROVEN, at=evidence.at)
    failed = next((step for step in evidence.steps if not step.passed), None)
    return NodeProof(
        node=name,
        pool=pool,
        status=ProofStatus.FAILED,
        step=failed.name if failed else UNNAMED_STEP,
        reason=failed.message if failed else "",
        at=evidence.at,
    )


def _evidence(node: Node, report: Report | None) -> Evidence | None:
    """It must name the Node, its boot, and the driver that it is told to run."""
    here = node.metadata.uid, node.status.node_info.boot_id
    if report is None or (report.node_uid, report.boot_id) != here:
        return None
    evidence = report.open()
    if not isinstance(evidence, Evidence):
        return None
    named = evidence.node_uid, evidence.boot_id, evidence.label
    return evidence if named == (*here, node.driver) else None


class FleetProofs:
    """Reads a cache of Nodes and a mirror of reports."""

    def __init__(self, nodes: Cache[Node], reports: ReportCache, *, belonging: PoolIndex) -> None:
        self._nodes = nodes
        self._belonging = belonging
        self._mirror = reports

    def all(self) -> Iterator[NodeProof]:
        """By the names of nodes."""
        for node in sorted(self._nodes, key=lambda one: one.metadata.name):
            yield self._judgement(node)

    def _judgement(self, node: Node) -> NodeProof:
        report = self._mirror.get(node.metadata.name, Writer.VALIDATOR, StateKind.EVIDENCE)
        pool = node.pool or self._belonging.pool_of(node.metadata.name)
        try:
            return node_proof(node, report, pool=pool)
        except MalformedMessage:
            return node_proof(node, None, pool=pool)
