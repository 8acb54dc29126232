"""Events as lines of text for newcomers. Pure.

Waits are printed only when they last. Digests are replaced by the versions that they stand for.
"""

import re
from collections.abc import Iterator

from libs.contracts.events import CommandEvent, Event, FactsEvent, RolloutEvent, WaitEvent
from libs.contracts.message import MalformedMessage

WAIT_SHOWN_AFTER = 1.0
"""Seconds after which a wait is printed."""

SKIPPED_EVENTS = (CommandEvent, FactsEvent)
"""A dozen for each node; steps and waits tell the same in fewer words."""

_DIGEST = re.compile(r"\b[0-9a-f]{32}\b")
_SHORT_DIGEST = 8


class VersionNames:
    """The driver versions that targets and driver labels stand for."""

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}

    def learn(self, digest: str, version: str) -> None:
        self._versions[digest] = version

    def guess(self, digest: str, version: str) -> None:
        """Assume a version, unless one is known."""
        if digest:
            self._versions.setdefault(digest, version)

    def replace_digests(self, text: str) -> str:
        """Replace digests by versions, and shorten unknown ones."""
        return _DIGEST.sub(
            lambda found: self._versions.get(found[0], found[0][:_SHORT_DIGEST]), text
        )


class EventFormatter:
    """Format events as lines with the seconds since the start of the demo."""

    def __init__(self, names: VersionNames, *, began: float) -> None:
        self._names = names
        self._began = began
        self.wanted = ""
        """The version in the policy: a new target is assumed to stand for it."""
        self._pending_waits: dict[str, tuple[Event, WaitEvent]] = {}
        """By node, a wait that may be over in a moment."""

    def lines_for(self, event: Event) -> Iterator[str]:
        """Return the lines to print at once, and keep waits for `overdue_lines`."""
        try:
            body = event.open()
        except MalformedMessage:
            return
        if isinstance(body, SKIPPED_EVENTS):
            return
        if isinstance(body, RolloutEvent):
            self._names.guess(body.target, self.wanted)
        if not isinstance(body, WaitEvent):
            yield self._event_line(event, at=event.at)
        elif body.code is None:
            self._pending_waits.pop(event.node, None)
        else:
            self._pending_waits[event.node] = event, body

    def overdue_lines(self, now: float) -> Iterator[str]:
        """Return the waits that have lasted, once each."""
        for node, (event, wait) in list(self._pending_waits.items()):
            if now - event.at >= WAIT_SHOWN_AFTER:
                del self._pending_waits[node]
                yield self._event_line(event, at=now, wait=wait)

    def line(self, actor: str, text: str, *, at: float) -> str:
        return f"{max(0.0, at - self._began):6.1f} s  {actor:<17} {text}"

    def _event_line(self, event: Event, *, at: float, wait: WaitEvent | None = None) -> str:
        message = event.message if wait is None else wait.detail
        node = event.node if wait is not None or event.node not in event.message else ""
        text = ": ".join(filter(None, (node, message)))
        return self.line(event.writer, self._names.replace_digests(text), at=at)
