"""Every link between pages leads to a file that exists, and to an anchor in it."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], key=lambda path: path.as_posix()
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ANCHOR = re.compile(r'<a id="([^"]+)">')
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    text = _FENCED.sub("", page.read_text())
    return frozenset(_ANCHOR.findall(text)) | {slug(each) for each in _HEADING.findall(text)}


def broken(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    text = _CODE.sub("", _FENCED.sub("", page.read_text()))
    found: list[str] = []
    for link in _LINK.findall(text):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_link_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One, two\n[a](#one-two) [b](#three) [c](none.md) `[d](x)`\n")
    assert broken(page) == ["#three", "none.md"]


def test_each_page_of_the_folder_is_linked_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    missing = [
        page.name for page in (ROOT / "docs").glob("*.md") if f"(docs/{page.name}" not in text
    ]
    assert missing == []
