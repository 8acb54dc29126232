"""What `sluice doctor` found, for people. Pure."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from libs.ctl.checks import Check, Verdict
from libs.ctl.text import printable
from libs.ctl.views.layout import fact

_STYLES = {
    Verdict.OK: "green",
    Verdict.UNKNOWN: "yellow",
    Verdict.WARNING: "yellow",
    Verdict.FAULT: "bold red",
}
_WIDTH = max(map(len, Verdict))


def doctor_view(checks: Sequence[Check]) -> RenderableType:
    """Return a line for each check, and below it what to do."""
    return Group(*(_check(check) for check in checks))


def _check(check: Check) -> RenderableType:
    head = Text.assemble(
        (f"{check.verdict:<{_WIDTH}}", _STYLES[check.verdict]),
        f"  {printable(check.about)}: {printable(check.found)}",
        overflow="fold",
    )
    return Group(head, fact("do", check.remedy)) if check.remedy else head
