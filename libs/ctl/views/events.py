"""Events as lines. Pure."""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace
from rich.console import RenderableType
from rich.text import Text

from libs.contracts.events import NOT_WAITING, STILL_WAITING, EventKind
from libs.ctl.answers import EventLine
from libs.ctl.text import clock_time, duration, printable
from libs.ctl.views.layout import Hanging

LEAST_WAIT: Final = 10.0
"""Seconds that a wait has to last to be told: each step of an upgrade has several short ones."""
_WAITING: Final = "waiting for "
"""Begins most reasons."""
_OF_AGENTS: Final = (EventKind.COMMAND, EventKind.FACTS)


def event_line(event: EventLine) -> RenderableType:
    """Return one event: when, where, by which service, and what happened."""
    node = event.node if event.node not in event.message else ""
    head = Text.assemble((f"{clock_time(event.at)}Z", "dim"), f"  {printable(event.writer)}")
    return Hanging(head, ": ".join(filter(None, (node, event.message))))


class Changes:
    """What changed, out of all events: without the commands to agents, and without short waits.

    A wait is told when it ends, with how long it lasted.
    """

    def __init__(self) -> None:
        self._waits: dict[str, EventLine] = {}
        """By node: the wait that has not ended."""

    def of(self, event: EventLine) -> Iterator[EventLine]:
        """Yield what an event changed."""
        if event.kind in _OF_AGENTS:
            return
        if event.kind != EventKind.WAIT:
            yield event
            return
        before = self._waits.get(event.node)
        if before is not None and event.message.startswith(f"{event.node}: {STILL_WAITING}"):
            return
        self._waits.pop(event.node, None)
        if before is not None and (lasted := event.at - before.at) >= LEAST_WAIT:
            yield replace(event, message=_said(before, f"waited {duration(lasted)}"))
        if not event.message.endswith(NOT_WAITING):
            self._waits[event.node] = event

    def rest(self) -> Iterator[EventLine]:
        """Yield the waits that have not ended."""
        for each in self._waits.values():
            yield replace(each, message=_said(each, "still waits"))


def _said(wait: EventLine, waits: str) -> str:
    reason = wait.message.removeprefix(f"{wait.node}: ")
    cause = reason.removeprefix(_WAITING)
    return f"{wait.node}: {waits}{' for ' if cause != reason else ': '}{cause}"
