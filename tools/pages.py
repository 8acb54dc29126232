"""Write the generated parts of pages. With `--check`, list the stale pages instead.

The parts between two marks of a page come from the contracts, their docstrings and the golden
files, from the rules of health, the diagnoses and the fields of telemetry; the rest is written by
hand.
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import health
import metrics
import wire

ROOT = Path(__file__).parents[1]

PAGES: dict[str, dict[str, Callable[[], list[str]]]] = {
    "docs/health.md": {"conditions": health.conditions, "xids": health.xids},
    "docs/metrics.md": {
        "default": metrics.default_fields,
        "more": metrics.more_fields,
        "labels": metrics.labels,
        "unavailable": metrics.unavailable,
        "diagnoses": metrics.diagnoses,
    },
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
"""By page: the generated part of each mark."""

_MARKED = re.compile(r"(<!-- made: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(page: str, text: str) -> str:
    """Return a page with its generated parts replaced."""
    parts = PAGES[page]
    marks = [name for _, name, _ in _MARKED.findall(text)]
    if sorted(marks) != sorted(parts):
        raise SystemExit(f"{page}: its marks are {marks}; each of {list(parts)} must appear once")

    def fill_part(mark: re.Match[str]) -> str:
        part = "\n".join(parts[mark[2]]()).strip()
        return f"{mark[1]}\n{part}\n\n{mark[3]}"

    return _MARKED.sub(fill_part, text)


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or list the stale ones; return the exit status."""
    parser = argparse.ArgumentParser(prog="tools/pages.py", description="Write generated pages.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if one is stale")
    check = parser.parse_args(arguments).check
    status = 0
    for page in PAGES:
        path = ROOT / page
        text = path.read_text()
        expected = fill(page, text)
        if text == expected:
            continue
        if check:
            print(f"{page} is stale: run `make fix`", file=sys.stderr)
            status = 1
        else:
            path.write_text(expected)
            print(f"wrote {page}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
