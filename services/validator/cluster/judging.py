"""What the evidence of a node is worth now. Pure.

Evidence proves one boot of one Node, with the driver that it names (docs/invariants.md#i3): of
another one it proves nothing. Whether a node may return to service is not decided by this; the
scheduler asks more.
"""

from enum import StrEnum

import msgspec

from libs.contracts.reports import Evidence, Report
from services.validator.cluster.things import Node

UNNAMED = "unnamed"
"""The step of evidence that failed, and does not say where."""


class Standing(StrEnum):
    """Where a node stands."""

    PROVEN = "proven"
    FAILED = "failed"
    UNPROVEN = "unproven"
    """Nothing was proven of it as it is now."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """Of one node."""

    node: str
    pool: str
    standing: Standing
    step: str = ""
    """The first step that failed."""
    reason: str = ""
    """What was wrong there and what to do, for a person."""
    at: float = 0.0
    """When it was validated, in unix seconds."""


def judged(node: Node, report: Report | None, *, pool: str) -> Judgement:
    """Of a node of this pool, with the last evidence that anybody has of it."""
    evidence = _evidence(node, report)
    name = node.metadata.name
    if evidence is None:
        return Judgement(node=name, pool=pool, standing=Standing.UNPROVEN)
    if evidence.passed:
        return Judgement(node=name, pool=pool, standing=Standing.PROVEN, at=evidence.at)
    failed = next((step for step in evidence.steps if not step.passed), None)
    return Judgement(
        node=name,
        pool=pool,
        standing=Standing.FAILED,
        step=failed.name if failed else UNNAMED,
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
