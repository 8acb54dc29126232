"""What happens, in lines for somebody who sees it for the first time. Pure.

A wait that is over in a moment is not told: nobody would have had the time to ask why. Digests are
told by the version that they stand for.
"""

import re
from collections.abc import Iterator

from libs.contracts.events import CommandEvent, Event, FactsEvent, RolloutEvent, WaitEvent
from libs.contracts.message import MalformedMessage

WAIT_SHOWN_AFTER = 1.0
"""Seconds after which a wait is worth a line."""

SKIPPED_EVENTS = (CommandEvent, FactsEvent)
"""A dozen for each node: steps and waits say the same in fewer words."""

_DIGEST = re.compile(r"\b[0-9a-f]{32}\b")
_SHOWN = 8


class VersionNames:
    """What digests stand for."""

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}

    def learn(self, digest: str, version: str) -> None:
        """A target or a driver label is of this version."""
        self._versions[digest] = version

    def guess(self, digest: str, version: str) -> None:
        """The same, where nobody has said otherwise."""
        if digest:
            self._versions.setdefault(digest, version)

    def replace_digests(self, text: str) -> str:
        """The text with versions for digests; one that is not known is shortened."""
        return _DIGEST.sub(lambda found: self._versions.get(found[0], found[0][:_SHOWN]), text)


class EventFormatter:
    """From events to lines, each with the second at which it belongs."""

    def __init__(self, names: VersionNames, *, began: float) -> None:
        self._names = names
        self._began = began
        self.wanted = ""
        """The version that people want now: a target that is new is of it."""
        self._held: dict[str, Event] = {}
        """By node, a wait that may be over in a moment."""

    def lines_for(self, event: Event) -> Iterator[str]:
        """What is to be said at once."""
        try:
            body = event.open()
        except MalformedMessage:
            return
        if isinstance(body, SKIPPED_EVENTS):
            return
        if isinstance(body, RolloutEvent):
            self._names.guess(body.target, self.wanted)
        if not isinstance(body, WaitEvent):
            yield self._line(event, at=event.at)
        elif body.code is None:
            self._held.pop(event.node, None)
        else:
            self._held[event.node] = event

    def overdue_lines(self, now: float) -> Iterator[str]:
        """Waits that have lasted."""
        for node, event in list(self._held.items()):
            if now - event.at >= WAIT_SHOWN_AFTER:
                del self._held[node]
                yield self._line(event, at=now)

    def _line(self, event: Event, *, at: float) -> str:
        about = "" if event.node in event.message else event.node
        words = ": ".join(filter(None, (about, event.message)))
        return self.line(event.writer, self._names.replace_digests(words), at=at)

    def line(self, who: str, words: str, *, at: float) -> str:
        """One line."""
        return f"{max(0.0, at - self._began):6.1f} s  {who:<17} {words}"
