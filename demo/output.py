"""Events as lines of text for newcomers. Pure.

Waits are printed only when they last. Digests are replaced by the versions that they stand for.
What a driver's container wrote is left out of events: the demo prints it when the container ends.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from demo.observed import DriverExit
from libs.contracts.events import (
    NO_CHANGE,
    Event,
    RolloutEvent,
    WaitEvent,
)
from libs.contracts.message import MalformedMessage
from libs.contracts.node import WHOLE_LOG
from libs.contracts.words import printable
from libs.fleet.names import DIGEST, name_versions

WAIT_SHOWN_AFTER = 2.0
"""Seconds after which a wait is printed, with the same waits of other nodes."""
JOINED_AFTER = 0.5
"""Seconds that a wait has lasted at least when it is printed with that of another node."""
_NAMED = 4
"""Up to so many nodes that wait for the same are named."""

NAMED_WITHIN = 2.0
"""Seconds within which the version that a new digest stands for is usually known."""

Versions = Callable[[], Mapping[str, str]]
"""Return the driver versions that targets and driver labels stand for."""


_LOG = re.compile(f", and its log ends: .*?; {WHOLE_LOG}: `[^`]*`")


class EventFormatter:
    """Format events as lines with the seconds since the start of the demo."""

    def __init__(self, versions: Versions, *, began: float) -> None:
        self._versions = versions
        self._began = began
        self._pending_waits: dict[str, tuple[Event, WaitEvent]] = {}
        """By node: a wait that may end before it is printed."""
        self._unnamed: list[Event] = []
        """Events of rollouts to targets whose versions are not known yet."""

    def lines_for(self, event: Event) -> Iterator[str]:
        """Return the lines to print at once, and keep waits for `overdue_lines`."""
        if event.kind in NO_CHANGE:
            return
        try:
            body = event.open()
        except MalformedMessage:
            return
        if not isinstance(body, WaitEvent):
            if isinstance(body, RolloutEvent) and not self._is_named(event):
                self._unnamed.append(event)
            else:
                yield self._event_line(event, at=event.at)
        elif body.code is None:
            self._pending_waits.pop(event.node, None)
        else:
            self._pending_waits[event.node] = event, body

    def overdue_lines(self, now: float) -> Iterator[str]:
        """Return the waits that have lasted, and the events whose versions were not known, once
        each.
        """
        for event in list(self._unnamed):
            if self._is_named(event) or now - event.at >= NAMED_WITHIN:
                self._unnamed.remove(event)
                yield self._event_line(event, at=now)
        for nodes in self._overdue_waits(now):
            waits = [self._pending_waits.pop(node) for node in nodes]
            event, wait = waits[0]
            yield self._event_line(event, at=now, wait=wait, nodes=_joined(nodes))

    def _overdue_waits(self, now: float) -> list[list[str]]:
        """Return the nodes whose waits are printed now; those that wait for the same together."""
        groups: dict[str, list[tuple[str, float]]] = {}
        for node, (event, wait) in self._pending_waits.items():
            if (lasted := now - event.at) >= JOINED_AFTER:
                groups.setdefault(wait.detail, []).append((node, lasted))
        return [
            [node for node, _ in group]
            for group in groups.values()
            if max(lasted for _, lasted in group) >= WAIT_SHOWN_AFTER
        ]

    def line(self, actor: str, text: str, *, at: float) -> str:
        return f"{max(0.0, at - self._began):6.1f} s  {actor:<17} {printable(text)}"

    def _is_named(self, event: Event) -> bool:
        return set(DIGEST.findall(event.message)) <= self._versions().keys()

    def _event_line(
        self, event: Event, *, at: float, wait: WaitEvent | None = None, nodes: str = ""
    ) -> str:
        message = event.message if wait is None else wait.detail
        about = nodes or (event.node if event.node not in event.message else "")
        text = ": ".join(filter(None, (about, _LOG.sub("", message))))
        return self.line(event.writer, name_versions(text, self._versions()), at=at)


def _joined(nodes: Sequence[str]) -> str:
    if len(nodes) <= _NAMED:
        return ", ".join(nodes)
    return f"{', '.join(nodes[: _NAMED - 1])} and {len(nodes) - _NAMED + 1} more"


def exit_line(
    ended: DriverExit, versions: Mapping[str, str], *, number: int, is_new: bool = True
) -> str:
    """Tell how a driver's container ended, for which time in its pod, and whether it wrote anything
    new.
    """
    driver = versions.get(ended.label, "")
    lines = "; its last lines:" if is_new else ", with the same last lines"
    times = f", for the {_ordinal(number)} time" if number > 1 else ""
    return (
        f"{ended.node}: the container of driver {driver} has ended with exit code"
        f" {ended.exit_code}{times}{lines}"
    )


def _ordinal(number: int) -> str:
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")
