"""Fills the parts of pages that are made from code. With `--check`: says which pages are stale.

A page has its own words; what stands in it between two marks comes from the contracts, the
docstrings in their sources, and the golden files. Nothing is known here of what is built on the
contracts.
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import wire

ROOT = Path(__file__).parents[1]

PAGES: dict[str, dict[str, Callable[[], list[str]]]] = {
    "docs/wire.md": {
        "planes": wire.planes,
        "inboxes": wire.inboxes,
        "streams": wire.stream_limits,
        "commands": wire.commands,
        "messages": wire.messages,
        "at-rest": wire.at_rest,
        "parts": wire.parts,
        "words": wire.words,
    },
}
"""Each page, and what is between its marks."""

_MARKED = re.compile(r"(<!-- made: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(page: str, text: str) -> str:
    """The page as it should be, with its own words as they are."""
    makers = PAGES[page]
    marks = [name for _, name, _ in _MARKED.findall(text)]
    if sorted(marks) != sorted(makers):
        raise SystemExit(f"{page}: its marks are {marks}; wanted once each: {list(makers)}")

    def fill(mark: re.Match[str]) -> str:
        made = "\n".join(makers[mark[2]]()).strip()
        return f"{mark[1]}\n{made}\n\n{mark[3]}"

    return _MARKED.sub(fill, text)


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with `--check` name those that are stale."""
    parser = argparse.ArgumentParser(prog="tools/pages.py", description="Write generated pages.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if one is stale")
    check = parser.parse_args(arguments).check
    status = 0
    for page in PAGES:
        path = ROOT / page
        text = path.read_text()
        wanted = fill(page, text)
        if text == wanted:
            continue
        if check:
            print(f"{page} is stale: make fix writes it", file=sys.stderr)
            status = 1
        else:
            path.write_text(wanted)
            print(f"wrote {page}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
