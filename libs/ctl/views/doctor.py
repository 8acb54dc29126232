"""What `sluice doctor` found, for people. Pure."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from libs.ctl.checks import Check, Verdict
from libs.ctl.views.layout import Hanging

_STYLES = {
    Verdict.OK: "green",
    Verdict.UNKNOWN: "yellow",
    Verdict.WARNING: "yellow",
    Verdict.FAULT: "bold red",
}
_WIDTH = max(map(len, Verdict))
_INDENT = Text(" " * _WIDTH)


def doctor_view(checks: Sequence[Check]) -> RenderableType:
    """Return a line for each check, and below it what to do."""
    return Group(*(_check(check) for check in checks))


def _check(check: Check) -> RenderableType:
    head = Text(f"{check.verdict:<{_WIDTH}}", _STYLES[check.verdict])
    found = Hanging(head, f"{check.about}: {check.found}")
    return Group(found, Hanging(_INDENT, f"do: {check.remedy}")) if check.remedy else found
