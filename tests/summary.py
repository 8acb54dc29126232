"""What a run prints at its end: what tests ran on, and what they measured.

Tests say it by properties, which reports carry from the workers to the process that prints.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import pytest

GROUND: Final = "ground"
"""The property of a test that says what it runs on."""
FIGURE: Final = "figure"
"""The property of a test that says what it measured."""
TALLY: Final = "tally"
"""The property of tests that are counted, which says what they are."""
_OUTCOMES: Final = ("passed", "failed", "error", "skipped")

Figure = Callable[[str], None]
"""Prints a line at the end of the run."""

Reports = Mapping[str, Sequence[pytest.TestReport | pytest.CollectReport]]
"""By outcome."""


def lines(reports: Reports) -> Iterator[str]:
    """Return the lines: each ground once, and below it the figures of the tests that passed."""
    figures: dict[str, list[str]] = {}
    tallies = Counter[str]()
    for outcome in _OUTCOMES:
        for report in reports.get(outcome, ()):
            if isinstance(report, pytest.CollectReport):  # a file that cannot be imported
                continue
            ground = "; ".join(_values(report, GROUND))
            of_ground = figures.setdefault(ground, [])
            if outcome == "passed":
                of_ground += _values(report, FIGURE)
            if outcome in ("passed", "failed"):
                tallies.update(_values(report, TALLY))
    for ground, measured in sorted(figures.items()):
        if ground:
            yield ground
        yield from (f"  {figure}" for figure in measured)
    yield from (f"{count} {what}" for what, count in tallies.items())


def _values(report: pytest.TestReport, name: str) -> list[str]:
    return [str(value) for each, value in report.user_properties if each == name]
