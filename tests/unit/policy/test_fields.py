"""Set every field once: the schema accepts it, and the model has it or a finding explains it."""

import pytest

from libs.policy.findings import Severity
from libs.policy.kinds import KINDS
from libs.policy.manifests import parse_manifest
from libs.policy.shapes import leaf_fields
from tests.unit.policy.crd_schemas import admit
from tests.unit.policy.fields import ExpectedFinding, FieldCase, cases, get, to_manifest

CASES = list(cases())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_set_field_has_the_expected_result(case: FieldCase) -> None:
    obj = case.manifest()
    stored = admit(obj)
    assert get(stored["spec"], case.path) == case.value
    result = parse_manifest(case.kind, stored)
    assert result.policy is not None
    prefix = f"spec.{case.path}"
    findings = [finding for finding in result.findings if finding.field.startswith(prefix)]
    if case.expected is ExpectedFinding.MODEL:
        assert findings == []
        assert get(to_manifest(result.policy)["spec"], case.path) == case.value
        return
    assert [finding.severity for finding in findings] == [Severity[case.expected.name]]
    assert all(finding.problem and finding.remedy for finding in findings)
    if case.expected is ExpectedFinding.NOTE:
        assert "no effect here, because " in findings[0].problem


def test_fields_without_effect_are_kept() -> None:
    for case in CASES:
        if case.expected is ExpectedFinding.NOTE:
            policy = parse_manifest(case.kind, case.manifest()).policy
            assert policy is not None
            assert get(to_manifest(policy)["spec"], case.path) == case.value


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_the_model_has_a_case(kind: str) -> None:
    known = {case.path for case in CASES if case.kind == kind}
    assert {path for path, _, _ in leaf_fields(KINDS[kind].spec_shape, "")} == known


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_a_description_and_an_effect(kind: str) -> None:
    undocumented = [
        path
        for path, field, reason in leaf_fields(KINDS[kind].spec_shape, "")
        if not field.about.description or not (reason or field.about.effect or field.about.alias)
    ]
    assert undocumented == []
