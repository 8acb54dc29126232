"""What must hold of the repository's text for the contracts to be the only ones."""

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
"""How a literal subject begins."""

PURE = {"collections.abc", "enum", "functools", "json", "re", "typing"}
"""Of the standard library, what data may be described with."""

CITED = re.compile(r"docs/(invariants|states|wire)\.md(?:#([\w-]+))?")
LINKED = re.compile(r"\]\((?:(invariants|states|wire)\.md)?(?:#([\w-]+))?\)")
ANCHOR = re.compile(r'<a id="([\w-]+)"></a>')
CODE = ("libs", "services", "demo", "tests", "bench", "tools")


def _texts(*places: str) -> Iterator[tuple[Path, str]]:
    for place in places:
        for path in sorted((ROOT / place).rglob("*")):
            parts = path.relative_to(ROOT).parts
            hidden = "__pycache__" in parts or any(part.startswith(".") for part in parts)
            if path.is_file() and not hidden:
                try:
                    yield path, path.read_text()
                except UnicodeDecodeError:
                    continue


def test_no_subject_is_spelt_outside_the_module_of_subjects() -> None:
    spelt = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in _texts(*CODE)
        if path != CONTRACTS / "subjects.py" and ROOT / "tests/contracts" not in path.parents
        for number, line in enumerate(text.splitlines(), 1)
        if SPELT.search(line)
    ]
    assert spelt == [], "build it with libs.contracts.subjects"


def test_the_search_for_subjects_finds_them() -> None:
    found = {path for path, text in _texts("libs") if SPELT.search(text)}
    assert CONTRACTS / "subjects.py" in found


def _imports(tree: ast.Module) -> Iterator[str]:
    for part in ast.walk(tree):
        if isinstance(part, ast.Import):
            yield from (name.name for name in part.names)
        elif isinstance(part, ast.ImportFrom):
            assert part.level == 0, "imports are absolute"
            yield part.module or ""


@pytest.mark.parametrize("path", sorted(CONTRACTS.glob("*.py")), ids=lambda path: path.name)
def test_contracts_import_msgspec_and_themselves_alone(path: Path) -> None:
    others = {
        name
        for name in _imports(ast.parse(path.read_text()))
        if name.split(".")[0] != "msgspec" and name.split(".")[:2] != ["libs", "contracts"]
    }
    assert others <= PURE


def _page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text()


def test_the_table_of_waits_has_exactly_the_wait_codes() -> None:
    section = _page("states").split('<a id="waits"></a>')[1].split("<a id=")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \|(.*)\|$", section, re.MULTILINE)
    assert [code for code, _ in rows] == [code.value for code in WaitCode]
    for code, row in rows:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)]
        assert len(cells) == 3, code
        assert all(cells), code


def test_every_wait_code_that_the_page_names_exists() -> None:
    named = re.findall(r"`Wait\(([a-z-]+)\)`", _page("states"))
    assert named
    assert set(named) <= {code.value for code in WaitCode}


def test_the_page_of_invariants_has_all_twelve() -> None:
    page = _page("invariants")
    headings = re.findall(r'^<a id="i(\d+)"></a>\n## I(\d+) \w', page, re.MULTILINE)
    assert headings == [(str(number), str(number)) for number in range(1, 13)]
    for section in page.split('<a id="i')[1:]:
        for part in ("**To the user.**", "**To a developer.**", "**Checked by**"):
            assert part in section, section.splitlines()[0]


@pytest.mark.parametrize("name", ["invariants", "states", "wire"])
def test_a_link_leads_to_one_place(name: str) -> None:
    anchors = ANCHOR.findall(_page(name))
    assert sorted(set(anchors)) == sorted(anchors)


def test_what_is_cited_of_the_pages_is_there() -> None:
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
    missing = [one for one in (*cited, *linked) if one[2] and one[2] not in anchors[one[1]]]
    assert missing == []
