"""Generated pages: `--check` names stale ones, and the command without it rewrites them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout that contains only the sources of the pages."""
    for place in ("tools", "docs", "tests/contracts/golden"):
        shutil.copytree(REPOSITORY / place, tmp_path / place)
    return tmp_path


def _pages(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout / "tools/pages.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_generated_pages_are_up_to_date() -> None:
    checked = _pages(REPOSITORY, "--check")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_stale_page_is_reported_and_the_remedy_fixes_it(copy: Path) -> None:
    page = copy / "docs/wire.md"
    fresh = page.read_text()
    page.write_text(fresh.replace("| `install_digest` |", "| `digest` |"))
    checked = _pages(copy, "--check")
    assert checked.returncode == 1
    assert checked.stderr == "docs/wire.md is stale: run `make fix`\n"
    assert _pages(copy).returncode == 0
    assert page.read_text() == fresh
    assert _pages(copy, "--check").returncode == 0


def test_handwritten_parts_of_a_page_are_kept(copy: Path) -> None:
    page = copy / "docs/wire.md"
    page.write_text(page.read_text().replace("# The wire", "# Our wire"))
    assert _pages(copy, "--check").returncode == 0


def test_examples_are_the_golden_files(copy: Path) -> None:
    golden = copy / "tests/contracts/golden/v1/beat.json"
    golden.write_text(golden.read_text().replace('"driver"', '"plugin"'))
    assert _pages(copy, "--check").returncode == 1


def test_a_page_without_markers_is_refused(copy: Path) -> None:
    page = copy / "docs/wire.md"
    page.write_text(page.read_text().replace("<!-- made: parts -->", ""))
    checked = _pages(copy)
    assert checked.returncode == 1
    assert "docs/wire.md: its marks are" in checked.stderr
