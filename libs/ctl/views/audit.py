"""Whether each promise was kept, as far as it could be judged. Pure."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from libs.audit import TITLES
from libs.ctl.answers import Audit, AuditedInvariant
from libs.ctl.text import clock_time, plural
from libs.ctl.views.layout import Column, fact, heading, line, listing
from libs.ctl.views.status import sources_view

_FIRST: Final = 5


def audit_view(audit: Audit, *, width: int, wide: bool = False) -> RenderableType:
    """Return a verdict for each promise, the violations, and the sources."""
    parts: list[RenderableType] = []
    if audit.since is not None and audit.until is not None:
        parts.append(heading(f"{clock_time(audit.since)} to {clock_time(audit.until)} UTC"))
    parts.append(listing(_COLUMNS, audit.invariants, width=width, wide=wide))
    for each in audit.invariants:
        shown = each.first if wide else each.first[:_FIRST]
        parts += (fact(f"{each.name} violated", message) for message in shown)
        if each.violations > len(shown):
            parts.append(line(f"  and {each.violations - len(shown)} more of {each.name}"))
    if count := len(audit.unjudged_nodes):
        names = ", ".join(audit.unjudged_nodes[:_FIRST]) + (", …" if count > _FIRST else "")
        text = f"no operation began on {names} within the log, so that their writes are not judged"
        parts.append(fact(plural(count, "node"), text))
    unread = audit.unread_journals
    shown = unread if wide else unread[:_FIRST]
    parts += (fact("not read, or cut", journal) for journal in shown)
    if len(unread) > len(shown):
        parts.append(line(f"  and {len(unread) - len(shown)} more journals"))
    return Group(*parts, Text(""), *sources_view(audit.sources))


def verdict(each: AuditedInvariant) -> str:
    """Return the verdict in a few words; a part that was not judged is never kept."""
    if each.violations:
        return f"violated {each.violations} times" if each.violations > 1 else "violated once"
    if not each.judged:
        return "not judged"
    return "kept where judged" if each.not_judged else "kept"


_COLUMNS: Final[Sequence[Column[AuditedInvariant]]] = (
    Column("PROMISE", lambda each: f"{each.name:<3} {TITLES[each.name]}"),
    Column("VERDICT", verdict),
    Column("NOT JUDGED WITHOUT", lambda each: each.not_judged, folds=True),
)
