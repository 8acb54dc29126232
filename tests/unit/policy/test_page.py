"""docs/policies.md says of each field what becomes of it, and so does the status of a policy."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.policy.findings import Severity
from libs.policy.kinds import KINDS
from libs.policy.kinds.unsupported import ONLY_FOR_VMS
from libs.policy.manifests import parse_manifest
from libs.policy.pools import assemble_pools
from libs.policy.readiness import Observation
from libs.policy.render.rendered import RenderResult
from libs.policy.status import policy_statuses
from libs.policy.unbuilt import ABSENT
from libs.policy.variants import NodeVariants
from tests.unit.policy.fields import ExpectedFinding, FieldCase, Object, cases, minimal_object, put
from tests.unit.policy.upstream_fields import FOLDER, upstream_fields

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "policies.md"
_ROW = re.compile(r"\| `(spec[^`]*)` \| ([^|]*) \| ([^|]*) \|.*")
Row = tuple[str, str]
"""What becomes of a field here, and its type."""


def rows() -> dict[str, dict[str, Row]]:
    """Return the rows of the page, by kind and path."""
    found: dict[str, dict[str, Row]] = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            found[line[3:]] = {}
        elif row := _ROW.fullmatch(line):
            list(found.values())[-1][row[1]] = row[2], row[3]
    return found


ROWS = rows()
CASES = list(cases())
OUTCOMES = {
    ExpectedFinding.MODEL: ("works", "works; refused: what is not a CUDA version"),
    ExpectedFinding.NOTE: ("no effect",),
    ExpectedFinding.WARNING: ("no effect",),
    ExpectedFinding.ERROR: ("works; refused: every value but `gpu`",),
}


def test_the_page_has_exactly_the_fields_of_the_kinds() -> None:
    known = {kind: {f"spec.{case.path}" for case in CASES if case.kind == kind} for kind in KINDS}
    assert {kind: set(fields) for kind, fields in ROWS.items()} == known


def test_the_page_says_what_becomes_of_each_field() -> None:
    different = [str(case) for case in CASES if outcome_of(case) not in expected_outcomes(case)]
    assert different == []


def outcome_of(case: FieldCase) -> str:
    return ROWS[case.kind][f"spec.{case.path}"][0]


def expected_outcomes(case: FieldCase) -> tuple[str, ...]:
    is_alias = case.path.endswith("gpuPodDeletion")
    return ("works",) if is_alias else OUTCOMES[case.expected]


def upstream_paths() -> Iterator[tuple[str, str]]:
    for version in FOLDER.iterdir():
        for file in version.glob("*.tsv"):
            for path in upstream_fields(version.name, file.stem):
                yield file.stem, path


def test_every_upstream_field_has_a_row() -> None:
    missing = [(kind, path) for kind, path in upstream_paths() if not has_row(kind, path)]
    assert missing == []
    assert len(list(upstream_paths())) > 500


def has_row(kind: str, path: str) -> bool:
    """Report whether the field has a row, or an open object or a list of objects that it is in."""
    above, _, below = path.partition("[].")
    above = above.removesuffix("[]").removesuffix(".*")
    outcome, shape = ROWS[kind].get(above, ("", ""))
    if outcome:
        return not below or f"`{below.split('.')[0]}`" in shape or shape == "list of objects"
    parents = above.split(".")
    paths = (".".join(parents[:count]) for count in range(2, len(parents)))
    return any(ROWS[kind].get(parent, ("", ""))[1] == "object" for parent in paths)


def test_a_condition_names_each_field_without_effect_that_is_set() -> None:
    without_effect = [case for case in CASES if outcome_of(case).startswith("no effect")]
    assert len(without_effect) > 200
    unnamed = [str(case) for case in without_effect if not is_named(case)]
    assert unnamed == []


def is_named(case: FieldCase) -> bool:
    message = conditions(case.manifest())["Accepted"]
    *above, last = f"spec.{case.path}".split(".")
    return ".".join(above[:2]) in message and bool(re.search(rf"\b{re.escape(last)}\b", message))


@pytest.mark.parametrize("section", [*ABSENT, *ONLY_FOR_VMS])
def test_one_condition_names_each_operand_that_does_not_exist_here(section: str) -> None:
    policy = minimal_object("ClusterPolicy")
    assert "MissingOperands" not in conditions(policy) or section not in conditions(policy)
    put(policy["spec"], f"{section}.enabled", True)
    assert (section in ONLY_FOR_VMS) == (section not in missing(policy))
    for each in (*ABSENT, *ONLY_FOR_VMS):
        put(policy["spec"], f"{each}.enabled", True)
    assert f"spec.{section} is switched on, but Sluice " in missing(policy)


def missing(policy: Object) -> str:
    return conditions(policy).get("MissingOperands", "")


def conditions(policy: Object) -> dict[str, str]:
    """Return the messages of a policy's conditions, by type."""
    pools = assemble_pools([parse_manifest(policy["kind"], policy)], [])
    (status,) = policy_statuses(
        pools,
        NodeVariants(nodes={}, pools={pool.key: () for pool in pools.pools}, unknown={}),
        RenderResult(objects=()),
        Observation(),
    )
    return {each.type: each.message for each in status.conditions}


def test_a_condition_with_every_field_without_effect_names_them_all() -> None:
    policy = minimal_object("ClusterPolicy")
    expected = (ExpectedFinding.NOTE, ExpectedFinding.WARNING)
    paths = [
        case.path for case in CASES if case.kind == "ClusterPolicy" and case.expected in expected
    ]
    for case in CASES:
        if case.kind == "ClusterPolicy" and case.path in paths:
            put(policy["spec"], case.path, case.value)
    found = parse_manifest("ClusterPolicy", policy)
    assert {each.severity for each in found.findings} == {Severity.NOTE, Severity.WARNING}
    message = conditions(policy)["Accepted"]
    assert len(message) < 32768
    lacking = [path for path in paths if path.rpartition(".")[2] not in message]
    assert lacking == []
    assert "and 1 more" not in message


def test_the_page_about_compatibility_lists_the_operands_that_do_not_exist_here() -> None:
    text = (DOCS / "compatibility.md").read_text()
    section = text.partition("## Operands that do not exist here")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `spec.")]
    listed = re.findall(r"`spec\.(\w+)`", " ".join(rows))
    assert sorted(listed) == sorted((*ABSENT, *ONLY_FOR_VMS))
