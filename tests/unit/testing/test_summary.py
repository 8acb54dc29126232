"""What a run prints at its end."""

import pytest

from tests.summary import FIGURE, GROUND, TALLY, lines


def report(**properties: str) -> pytest.TestReport:
    return pytest.TestReport(
        "tests/test_it.py::test_it",
        ("tests/test_it.py", 0, "test_it"),
        {},
        "passed",
        None,
        "call",
        user_properties=list(properties.items()),
    )


def test_figures_are_printed_below_what_the_tests_ran_on() -> None:
    nodes, guest = {GROUND: "Nodes: two"}, {GROUND: "Guest: none"}
    reports = {
        "passed": [report(), report(**nodes, **{FIGURE: "2 MiB"}), report(**{FIGURE: "5 s"})],
        "failed": [report(**nodes, **{FIGURE: "of a test that failed"})],
        "skipped": [report(**guest), report(**guest)],
    }
    assert list(lines(reports)) == ["  5 s", "Guest: none", "Nodes: two", "  2 MiB"]


def test_tests_are_counted_that_ran() -> None:
    seeds = report(**{TALLY: "seeds"})
    reports = {"passed": [seeds, seeds], "failed": [seeds], "skipped": [seeds], "warnings": []}
    assert list(lines(reports)) == ["3 seeds"]


def test_a_run_without_any_prints_nothing() -> None:
    assert list(lines({"passed": [report()]})) == []


def test_a_file_that_cannot_be_imported_hides_no_other_line() -> None:
    broken = pytest.CollectReport("tests/test_it.py", "failed", "SyntaxError", None)
    reports = {"error": [broken], "passed": [report(**{GROUND: "Nodes: two"})]}
    assert list(lines(reports)) == ["Nodes: two"]
