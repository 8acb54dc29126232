"""Rules for the repository's text: literal subjects, imports, and citations of the docs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import libs.contracts
from libs.contracts.waits import WaitCode

ROOT = Path(__file__).parents[2]
CONTRACTS = Path(libs.contracts.__path__[0])
SPELT = re.compile(r"sluice\.v1|\$JS\.|\$SRV|_INBOX")
"""Matches the beginning of literal subjects."""

PURE = {"collections.abc", "datetime", "enum", "functools", "hashlib", "json", "re", "typing"}
"""The standard library modules that contracts may import: `datetime` writes given times."""

CITED = re.compile(r"docs/(invariants|states|wire)\.md(?:#([\w-]+))?")
LINKED = re.compile(r"\]\((?:(invariants|states|wire)\.md)?(?:#([\w-]+))?\)")
ANCHOR = re.compile(r'<a id="([\w-]+)"></a>')
CODE = ("libs", "services", "demo", "tests", "bench", "tools")


def _texts(*places: str) -> Iterator[tuple[Path, str]]:
    for folder in places:
        for path in sorted((ROOT / folder).rglob("*")):
            parts = path.relative_to(ROOT).parts
            hidden = "__pycache__" in parts or any(part.startswith(".") for part in parts)
            if path.is_file() and not hidden:
                try:
                    yield path, path.read_text()
                except UnicodeDecodeError:
                    continue


def test_only_the_subjects_module_contains_literal_subjects() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in _texts(*CODE)
        if path != CONTRACTS / "subjects.py" and ROOT / "tests/contracts" not in path.parents
        for number, line in enumerate(text.splitlines(), 1)
        if SPELT.search(line)
    ]
    assert SPELT.search((CONTRACTS / "subjects.py").read_text())
    assert found == [], "build it with libs.contracts.subjects"


def _imports(tree: ast.Module) -> Iterator[str]:
    for part in ast.walk(tree):
        if isinstance(part, ast.Import):
            yield from (name.name for name in part.names)
        elif isinstance(part, ast.ImportFrom):
            assert part.level == 0, "imports are absolute"
            yield part.module or ""


@pytest.mark.parametrize("path", sorted(CONTRACTS.glob("*.py")), ids=lambda path: path.name)
def test_contracts_import_only_msgspec_and_each_other(path: Path) -> None:
    others = {
        name
        for name in _imports(ast.parse(path.read_text()))
        if name.split(".")[0] != "msgspec" and name.split(".")[:2] != ["libs", "contracts"]
    }
    assert others <= PURE


def _page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text()


def test_the_documented_wait_codes_are_complete() -> None:
    section = _page("states").split('<a id="waits"></a>')[1].split("<a id=")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \|(.*)\|$", section, re.MULTILINE)
    assert [code for code, _ in rows] == [code.value for code in WaitCode]
    for code, row in rows:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)]
        assert len(cells) == 3, code
        assert all(cells), code


def test_wait_codes_in_the_page_exist() -> None:
    named = re.findall(r"`Wait\(([a-z-]+)\)`", _page("states"))
    assert named
    assert set(named) <= {code.value for code in WaitCode}


def test_the_page_describes_all_twelve_invariants() -> None:
    page = _page("invariants")
    headings = re.findall(r'^<a id="i(\d+)"></a>\n## I(\d+) \w', page, re.MULTILINE)
    assert headings == [(str(number), str(number)) for number in range(1, 13)]
    for section in page.split('<a id="i')[1:]:
        for part in ("**To the user.**", "**To a developer.**", "**Checked by**"):
            assert part in section, section.splitlines()[0]


@pytest.mark.parametrize("name", ["invariants", "states", "wire"])
def test_anchors_are_unique(name: str) -> None:
    anchors = ANCHOR.findall(_page(name))
    assert sorted(set(anchors)) == sorted(anchors)


def test_cited_anchors_exist() -> None:
    anchors = {name: set(ANCHOR.findall(_page(name))) for name in ("invariants", "states", "wire")}
    cited = [
        (path.relative_to(ROOT), page, anchor)
        for path, text in _texts(*CODE, "docs")
        for page, anchor in CITED.findall(text)
    ]
    linked = [
        (page, target or page, anchor)
        for page in anchors
        for target, anchor in LINKED.findall(_page(page))
    ]
    assert linked
    missing = [
        citation
        for citation in (*cited, *linked)
        if citation[2] and citation[2] not in anchors[citation[1]]
    ]
    assert missing == []
