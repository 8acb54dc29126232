"""Evidence proves a Node only for the same uid, boot and driver."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.diagnoses import Diagnosis
from libs.contracts.facts import Facts
from libs.contracts.node import NodeRecord, ValidationPod
from libs.contracts.reports import Evidence, Report, StateBody, ValidationStep
from services.validator.cluster.proofs import Node, NodeProof, ProofStatus, node_proof
from tests.builders import fleet, objects
from tests.builders.fleet import written
from tests.builders.objects import seen

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


def node(
    labels: dict[str, str] | None = None,
    *,
    record: NodeRecord | None = None,
    pod: ValidationPod | None = None,
) -> Node:
    """Return a Node with a driver."""
    labels = {"sluice.dev/driver": "d-1", **(labels or {})}
    notes = written(record, validation_pod=pod)
    return seen(Node, objects.node(boot="b", labels=labels, annotations=notes))


def report_of(body: StateBody, *, uid: str = "u", boot: str = "b") -> Report:
    """Return a report by the validator of this node."""
    return Report.of(body, node="a", node_uid=uid, boot_id=boot, component="validator", at=8.0)


def verdict(view: Node, report: Report | None) -> NodeProof:
    """Return the proof of a node in pool p."""
    return node_proof(view, report, pool="p")


def status_with(**changed: Any) -> ProofStatus:
    """Return the status of a node whose evidence differs in these fields."""
    return verdict(node(), report_of(replace(EVIDENCE, **changed))).status


def test_matching_evidence_is_proof() -> None:
    assert verdict(node(), report_of(EVIDENCE)) == NodeProof(
        node="a", pool="p", status=ProofStatus.PROVEN, at=7.0
    )


def test_a_pod_that_failed_fails_the_validation_that_it_was_to_confirm() -> None:
    failed = ValidationPod(node_uid="u", order="1.1", passed=False, message="exceeded quota")
    proof = verdict(node(pod=failed), report_of(EVIDENCE))
    assert (proof.status, proof.step, proof.reason) == (
        ProofStatus.FAILED,
        "workload",
        "exceeded quota",
    )
    for other in (
        replace(failed, order="1.2"),
        replace(failed, node_uid="before"),
        replace(failed, passed=None),
        replace(failed, passed=True),
    ):
        assert verdict(node(pod=other), report_of(EVIDENCE)).status is ProofStatus.PROVEN


def test_evidence_that_was_not_asked_for_names_a_diagnosis_and_proves_nothing() -> None:
    step = ValidationStep(name="driver", passed=False, diagnosis=Diagnosis.NOUVEAU)
    unasked = replace(EVIDENCE, epoch=0, token=0, op=0, passed=False, label="", steps=(step,))
    for labels in ({}, {"sluice.dev/driver": ""}):
        proof = verdict(node(labels), report_of(unasked))
        assert (proof.status, proof.diagnoses) == (ProofStatus.UNPROVEN, (Diagnosis.NOUVEAU,))
    proof = verdict(node(), report_of(unasked, boot="other"))
    assert (proof.status, proof.diagnoses) == (ProofStatus.UNPROVEN, ())


@pytest.mark.parametrize(
    "changed",
    [{"node_uid": "other"}, {"boot_id": "other"}, {"label": "d-2"}, {"label": ""}],
    ids=str,
)
def test_evidence_of_another_node_boot_or_driver_is_no_proof(changed: dict[str, str]) -> None:
    assert status_with(**changed) is ProofStatus.UNPROVEN
    assert status_with(**changed, passed=False) is ProofStatus.UNPROVEN


def test_a_report_of_another_node_or_boot_is_no_proof() -> None:
    others = (report_of(EVIDENCE, uid="other"), report_of(EVIDENCE, boot="other"))
    for report in (None, *others, report_of(Facts())):
        assert verdict(node(), report).status is ProofStatus.UNPROVEN


def test_a_node_without_a_driver_of_ours_is_proven_without_a_label() -> None:
    bare = node({"sluice.dev/driver": ""})
    evidence = replace(EVIDENCE, label="")
    assert verdict(bare, report_of(evidence)).status is ProofStatus.PROVEN
    assert verdict(bare, report_of(EVIDENCE)).status is ProofStatus.UNPROVEN


def test_the_reason_is_that_of_the_first_failed_step() -> None:
    failed = replace(EVIDENCE, passed=False, steps=(DRIVER, TOOLKIT, CUDA))
    assert verdict(node(), report_of(failed)) == NodeProof(
        node="a",
        pool="p",
        status=ProofStatus.FAILED,
        step="toolkit",
        reason="no RuntimeClass: make one",
        at=7.0,
    )
    unnamed = replace(failed, steps=(DRIVER,))
    proof = verdict(node(), report_of(unnamed))
    assert (proof.step, proof.reason) == ("unnamed", "")


def test_the_pool_of_a_node_is_that_of_its_record_or_else_of_its_owner() -> None:
    assert node().pool == ""
    owned = {"nvidia.com/gpu-operator.driver.owner": "Blue"}
    assert node(owned).pool == "nvidiadriver-blue"
    record = fleet.record(pool="clusterpolicy-x")
    assert node(owned, record=record).pool == "clusterpolicy-x"
    assert node(owned, record=fleet.record()).pool == "nvidiadriver-blue"
