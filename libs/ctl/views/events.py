"""Events as lines. Pure."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from math import inf
from typing import Final

import msgspec
from msgspec.structs import replace
from rich.console import RenderableType
from rich.text import Text

from libs.contracts.events import NO_CHANGE, NOT_WAITING, STILL_WAITING, EventKind
from libs.ctl.text import clock_time, duration, plural, printable, some
from libs.ctl.views.layout import Hanging
from libs.fleet.names import natural_order
from libs.fleet.status import EventLine

LEAST_WAIT: Final = 10.0
"""Seconds that a wait has to last to be told: each step of an upgrade has several short ones."""
TOGETHER: Final = 10.0
"""Seconds within which the same of several nodes is one line."""
_NAMED: Final = 6
"""Up to so many nodes of a line are all named; of more, one less is, and the others are counted."""
_LEAST_DETAILS: Final = 60
"""Characters from which details in brackets are told once: they have the end of a log."""
_WAITING: Final = "waiting for "
"""Begins most reasons."""
_OF_GPU: Final = re.compile(r"GPU (?P<gpu>\S+): (?P<what>.*)")
"""How events about the health of a GPU begin."""


def event_line(event: EventLine) -> RenderableType:
    """Return one event: when, where, by which service, and what happened.

    What halted or ended a rollout, and what people did about it, stands out.
    """
    node = event.node if event.node not in event.message else ""
    head = Text.assemble((f"{clock_time(event.at)}Z", "dim"), f"  {printable(event.writer)}")
    style = "bold" if event.kind == EventKind.ROLLOUT else ""
    return Hanging(head, ": ".join(filter(None, (node, event.message))), style)


def nothing_to_show(wanted: str, found: int) -> str:
    """Return why no line is shown: there are no events, or none by which something changed."""
    if not found:
        return f"there are no events{wanted} in that time"
    return (
        f"no event{wanted} in that time changed anything; -o wide shows {plural(found, 'other')}:"
        " commands to agents, short waits"
    )


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What changed by an event."""

    event: EventLine
    what: str
    """Without the name of the node or of a GPU; of a wait, what it is for."""
    gpu: str = ""
    """The GPU that the event is about."""
    waited: float | None = None
    """How long a wait lasted that is over, or has lasted so far."""
    goes_on: bool = False
    """Whether that wait has not ended."""


class Changes:
    """What changed, out of all events: without what changes nothing, and without short waits.

    A wait is told when it ends, with how long it lasted.
    """

    def __init__(self) -> None:
        self._waits: dict[str, EventLine] = {}
        """By node: the wait that has not ended."""

    def of(self, event: EventLine) -> Iterator[Change]:
        """Yield what an event changed."""
        if event.kind in NO_CHANGE:
            return
        if event.kind != EventKind.WAIT:
            yield _change(event)
            return
        before = self._waits.get(event.node)
        if before is not None and event.message.startswith(f"{event.node}: {STILL_WAITING}"):
            return
        self._waits.pop(event.node, None)
        if before is not None and (waited := event.at - before.at) >= LEAST_WAIT:
            yield Change(event=event, what=_cause(before), waited=waited)
        if not _ends_wait(event):
            self._waits[event.node] = event

    def rest(self, now: float) -> Iterator[Change]:
        """Yield the waits that have lasted and not ended, as of now."""
        for each in self._waits.values():
            if (waited := now - each.at) >= LEAST_WAIT:
                event = replace(each, at=now)
                yield Change(event=event, what=_cause(each), waited=waited, goes_on=True)


class ChangedLines:
    """What changed, as lines for people: the same of several nodes is one line.

    Long details of a node, as the end of a log, are in the first line that has them.
    """

    def __init__(self) -> None:
        self._changes = Changes()
        self._joined = _JoinedChanges(TOGETHER)
        self._details: dict[str, str] = {}
        """By node: the long details that were told last."""

    def of(self, event: EventLine) -> Iterator[EventLine]:
        """Yield the lines that are complete with an event."""
        for change in self._changes.of(event):
            yield from self._joined.add(self._without_told(change))

    def rest(self, now: float) -> Iterator[EventLine]:
        """Yield the last lines, and the waits that have not ended."""
        yield from self._joined.rest()
        waits = _JoinedChanges(inf)
        for change in self._changes.rest(now):
            yield from waits.add(self._without_told(change))
        yield from waits.rest()

    def _without_told(self, change: Change) -> Change:
        node = change.event.node
        _, details, _ = _split_details(change.what)
        if not node or len(details) < _LEAST_DETAILS:
            return change
        told = self._details.get(node, "")
        if not told or (details not in told and told not in details):
            self._details[node] = details
            return change
        message = _shortened(change.event.message, told)
        event = replace(change.event, message=message)
        return replace(change, event=event, what=_shortened(change.what, told))


class _JoinedChanges:
    """Changes that are the same, joined if they are near each other.

    None is moved before another of its node or of a pool.
    """

    def __init__(self, within: float) -> None:
        self._within = within
        self._lines: deque[list[Change]] = deque()
        """Those that another change may still join, in order."""
        self._nodes: deque[set[str]] = deque()
        """The nodes of each line."""

    def add(self, change: Change) -> Iterator[EventLine]:
        """Take a change over; yield the lines that nothing can join any more."""
        at, node = change.event.at, change.event.node
        while self._lines and at - self._lines[0][0].event.at > self._within:
            self._nodes.popleft()
            yield _joined(self._lines.popleft())
        lines = zip(reversed(self._lines), reversed(self._nodes), strict=True)
        for line, nodes in lines if node else ():
            is_same = _is_same(line[0], change)
            if "" in nodes or (node in nodes and not (is_same and change.gpu)):
                break
            if is_same:
                line.append(change)
                nodes.add(node)
                return
        place = self._place(change)
        self._lines.insert(place, [change])
        self._nodes.insert(place, {node})

    def _place(self, change: Change) -> int:
        """Return the place of a new line by its time: clocks and ways of writers differ."""
        at, node = change.event.at, change.event.node
        place = len(self._lines)
        while node and place and self._lines[place - 1][0].event.at > at:
            if self._nodes[place - 1] & {"", node}:
                break
            place -= 1
        return place

    def rest(self) -> Iterator[EventLine]:
        """Yield the last lines."""
        yield from map(_joined, self._lines)
        self._lines.clear()
        self._nodes.clear()


class FollowedEvents:
    """All events as they happen, without the ends of waits that the step before them shows."""

    def __init__(self) -> None:
        self._waiting: dict[str, bool] = {}
        """By node: whether the last event was of its wait."""

    def is_told(self, event: EventLine) -> bool:
        was_waiting = self._waiting.get(event.node, True)
        self._waiting[event.node] = event.kind == EventKind.WAIT
        return was_waiting or not _ends_wait(event)


def _change(event: EventLine) -> Change:
    what = event.message.removeprefix(f"{event.node}: ")
    found = _OF_GPU.fullmatch(what) if event.kind == EventKind.HEALTH else None
    if found is None:
        return Change(event=event, what=what)
    return Change(event=event, what=found["what"], gpu=found["gpu"])


def _split_details(text: str) -> tuple[str, str, str]:
    """Return what is before the brackets of a text, in them, and after them."""
    before, _, rest = text.partition(" (")
    details, _, after = rest.rpartition(")")
    return before, details, after


def _shortened(text: str, told: str) -> str:
    """Return a text without those details in its brackets that were told."""
    if (whole := f" ({told})") in text:
        return text.replace(whole, "")
    before, details, after = _split_details(text)
    left = "" if details in told else details.replace(told, "").rstrip(" :;,")
    return before + (f" ({left})" if left else "") + after


def _is_same(change: Change, other: Change) -> bool:
    """Whether two changes differ by their nodes, GPUs and durations alone."""
    return _alike(change) == _alike(other)


def _alike(change: Change) -> tuple[str, str, bool, bool, bool]:
    is_wait, has_gpu = change.waited is not None, change.gpu != ""
    return change.event.writer, change.what, is_wait, change.goes_on, has_gpu


def _joined(line: Sequence[Change]) -> EventLine:
    """Return the line of a change, or of the same on several nodes or GPUs."""
    first = line[0]
    waits = [each.waited for each in line if each.waited is not None]
    if len(line) == 1 and not waits:
        return first.event
    names = sorted({each.event.node for each in line}, key=natural_order)
    listed = ", ".join(names) if len(names) <= _NAMED else some(names, _NAMED - 1)
    what = f"{len(line)} GPUs: {first.what}" if first.gpu else first.what
    if waits:
        lasted = _range(min(waits), max(waits))
        what = f"still waits{what}, {lasted} so far" if first.goes_on else f"waited {lasted}{what}"
    return replace(first.event, node="", message=f"{listed}: {what}")


def _range(least: float, most: float) -> str:
    low, high = duration(least), duration(most)
    return low if low == high else f"{low} to {high}"


def _cause(wait: EventLine) -> str:
    """Return what a wait is for, as it follows after `waited`."""
    reason = wait.message.removeprefix(f"{wait.node}: ")
    cause = reason.removeprefix(_WAITING)
    return f"{' for ' if cause != reason else ': '}{cause}"


def _ends_wait(event: EventLine) -> bool:
    return event.kind == EventKind.WAIT and event.message.endswith(NOT_WAITING)
