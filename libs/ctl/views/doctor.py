"""What `sluice doctor` found, for people. Pure."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from libs.ctl.checks import Check, Verdict
from libs.ctl.text import plural
from libs.ctl.views.layout import Hanging

_STYLES = {
    Verdict.OK: "green",
    Verdict.UNKNOWN: "yellow",
    Verdict.WARNING: "yellow",
    Verdict.FAULT: "bold red",
}
_WIDTH = max(map(len, Verdict))
_INDENT = Text(" " * _WIDTH)
_RANKS = list(Verdict)


def doctor_view(checks: Sequence[Check], *, wide: bool = False) -> RenderableType:
    """Return what is wrong, the worst first, each with what to do; what is ok is a line together.

    With `wide` each check that is ok has a line of its own.
    """
    ordered = sorted(checks, key=lambda check: -_RANKS.index(check.verdict))
    good = [check for check in ordered if check.verdict is Verdict.OK]
    shown = ordered if wide else ordered[: len(ordered) - len(good)]
    lines = [_check(check) for check in shown]
    if good and not wide:
        abouts = ", ".join(check.about for check in good)
        lines.append(_line(Verdict.OK, f"{plural(len(good), 'check')} (-o wide): {abouts}"))
    return Group(*lines)


def _check(check: Check) -> RenderableType:
    found = _line(check.verdict, f"{check.about}: {check.found}")
    return Group(found, Hanging(_INDENT, f"do: {check.remedy}")) if check.remedy else found


def _line(verdict: Verdict, text: str) -> RenderableType:
    return Hanging(Text(f"{verdict:<{_WIDTH}}", _STYLES[verdict]), text)
