"""What evidence is worth: of this Node, boot and driver everything, of any other nothing."""

from typing import Any

import msgspec
import pytest

from libs.contracts.facts import Facts
from libs.contracts.message import encode
from libs.contracts.node import NodeRecord
from libs.contracts.reports import Evidence, Report, StateBody, ValidationStep
from services.validator.cluster.proofs import Node, NodeProof, ProofStatus, node_proof

DRIVER = ValidationStep(name="driver", passed=True)
TOOLKIT = ValidationStep(name="toolkit", passed=False, message="no RuntimeClass: make one")
CUDA = ValidationStep(name="cuda", passed=False, message="not tried")
EVIDENCE = Evidence(
    epoch=1,
    token=1,
    op=1,
    passed=True,
    label="d-1",
    node_uid="u",
    boot_id="b",
    kernel="5.15",
    steps=(DRIVER,),
    at=7.0,
)


def node(labels: dict[str, str] | None = None, *, record: NodeRecord | None = None) -> Node:
    """With a driver."""
    annotations = {} if record is None else {"sluice.dev/upgrade": encode(record).decode()}
    lines = {"sluice.dev/driver": "d-1", **(labels or {})}
    metadata = {"name": "a", "uid": "u", "labels": lines, "annotations": annotations}
    status = {"nodeInfo": {"bootID": "b"}}
    return msgspec.convert({"metadata": metadata, "status": status}, Node)


def reported(body: StateBody, *, uid: str = "u", boot: str = "b") -> Report:
    """By the validator of this node."""
    return Report.of(body, node="a", node_uid=uid, boot_id=boot, component="validator", at=8.0)


def verdict(seen: Node, report: Report | None) -> NodeProof:
    """Of a node of the pool p."""
    return node_proof(seen, report, pool="p")


def standing(**changed: Any) -> ProofStatus:
    """Of a node with evidence that is another in this."""
    return verdict(node(), reported(msgspec.structs.replace(EVIDENCE, **changed))).status


def test_evidence_of_what_there_is_is_proof() -> None:
    assert verdict(node(), reported(EVIDENCE)) == NodeProof(
        node="a", pool="p", status=ProofStatus.PROVEN, at=7.0
    )


@pytest.mark.parametrize(
    "changed",
    [{"node_uid": "other"}, {"boot_id": "other"}, {"label": "d-2"}, {"label": ""}],
)
def test_evidence_of_something_else_is_none(changed: dict[str, str]) -> None:
    assert standing(**changed) is ProofStatus.UNPROVEN
    assert standing(**changed, passed=False) is ProofStatus.UNPROVEN


def test_a_report_of_another_node_or_boot_is_none() -> None:
    for report in (
        None,
        reported(EVIDENCE, uid="other"),
        reported(EVIDENCE, boot="other"),
        reported(Facts()),
    ):
        assert verdict(node(), report).status is ProofStatus.UNPROVEN


def test_a_node_without_a_driver_of_ours_is_proven_without_a_label() -> None:
    bare = node({"sluice.dev/driver": ""})
    evidence = msgspec.structs.replace(EVIDENCE, label="")
    assert verdict(bare, reported(evidence)).status is ProofStatus.PROVEN
    assert verdict(bare, reported(EVIDENCE)).status is ProofStatus.UNPROVEN


def test_the_first_step_that_failed_says_why() -> None:
    failed = msgspec.structs.replace(EVIDENCE, passed=False, steps=(DRIVER, TOOLKIT, CUDA))
    assert verdict(node(), reported(failed)) == NodeProof(
        node="a",
        pool="p",
        status=ProofStatus.FAILED,
        step="toolkit",
        reason="no RuntimeClass: make one",
        at=7.0,
    )
    silent = msgspec.structs.replace(failed, steps=(DRIVER,))
    assert (verdict(node(), reported(silent)).step, verdict(node(), reported(silent)).reason) == (
        "unnamed",
        "",
    )


def test_the_pool_of_a_node() -> None:
    assert node().pool == ""
    owned = {"nvidia.com/gpu-operator.driver.owner": "Blue"}
    assert node(owned).pool == "nvidiadriver-blue"
    record = NodeRecord(node_uid="u", epoch=1, token=1, pool="clusterpolicy-x")
    assert node(owned, record=record).pool == "clusterpolicy-x"
    assert (
        node(owned, record=NodeRecord(node_uid="u", epoch=1, token=1)).pool == "nvidiadriver-blue"
    )
