"""Set every field once: the schema accepts it, and the model has it or a finding says why not."""

from collections.abc import Iterator

import pytest

from libs.policy.findings import Severity
from libs.policy.kinds import KINDS
from libs.policy.manifests import parse_manifest
from libs.policy.shapes import JsonType, Shape
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
    at = f"spec.{case.path}"
    findings = [found for found in result.findings if found.field.startswith(at)]
    if case.expected is ExpectedFinding.MODEL:
        assert findings == []
        assert get(to_manifest(result.policy)["spec"], case.path) == case.value
        return
    assert [found.severity for found in findings] == [Severity[case.expected.name]]
    assert all(found.problem and found.remedy for found in findings)
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
    assert set(_leaves(KINDS[kind].spec_shape, "")) == known


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_a_description_and_an_effect(kind: str) -> None:
    silent = list(_silent(KINDS[kind].spec_shape, "", inert=False))
    assert silent == []


def _leaves(shape: Shape, path: str) -> Iterator[str]:
    for field in shape.fields:
        at = f"{path}.{field.name}".lstrip(".")
        if field.shape.type is JsonType.OBJECT and not field.about.alias:
            yield from _leaves(field.shape, at)
        else:
            yield at


def _silent(shape: Shape, path: str, *, inert: bool) -> Iterator[str]:
    for field in shape.fields:
        at, about = f"{path}.{field.name}".lstrip("."), field.about
        if field.shape.type is JsonType.OBJECT and not about.alias:
            yield from _silent(field.shape, at, inert=inert or bool(about.no_effect_because))
        elif not (inert or about.no_effect_because or about.effect or about.alias):
            yield at
        if not about.description:
            yield at
