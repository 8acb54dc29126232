"""Which handlers the container runtimes of nodes know, as driver agents report them.

Kubelets say it too, except with containerd 1.7. What was reported is kept during outages.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from libs.bus.port import Bus, LastPerSubject, StoredMessage
from libs.contracts import subjects
from libs.contracts.facts import Facts
from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage, decode
from libs.contracts.reports import Report, StateKind
from libs.contracts.subjects import STATE, NotASubject, State

MAX_HANDLERS: Final = 8
"""The most handlers of a node that count."""


class ReportedHandlers:
    """By the uid of each node; empty until `follow` is entered."""

    def __init__(self) -> None:
        self._by_subject: dict[str, tuple[str, frozenset[str]]] = {}
        self._repeated = set[str]()
        self._watchers = list[Callable[[], None]]()

    @asynccontextmanager
    async def follow(self, bus: Bus) -> AsyncGenerator[None]:
        """Follow the reports until the end of the block, through outages of the bus."""
        pattern = subjects.cluster_pattern(State, bus.identity.cluster)
        following = await bus.follow(STATE, pattern, self, start=LastPerSubject())
        try:
            yield
        finally:
            await following.close()

    def by_node(self) -> Mapping[str, frozenset[str]]:
        """Return the handlers by the uid of their node."""
        return dict(self._by_subject.values())

    def on_change(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher` after each change, until the returned function is called."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    # Called by the bus (`Follower`).

    def began(self) -> None:
        """Prepare for every report to be repeated."""
        self._repeated.clear()

    def received(self, message: StoredMessage) -> None:
        """Keep the handlers of a driver agent's facts; a malformed report changes nothing."""
        try:
            subject = subjects.parse(message.subject)
            if not isinstance(subject, State) or (subject.component, subject.kind) != _FACTS:
                return
            self._repeated.add(message.subject)
            report = decode(Report, message.data)
            facts = report.open()
        except (MalformedMessage, NotASubject):
            return
        known = facts.container_runtime if isinstance(facts, Facts) else None
        names = known.handlers[:MAX_HANDLERS] if known is not None else ()
        self._set(message.subject, (report.node_uid, frozenset(names)))

    def caught_up(self) -> None:
        """Drop the nodes that the stream did not repeat."""
        for subject in self._by_subject.keys() - self._repeated:
            self._set(subject, None)

    def lost(self) -> None:
        """Keep what was reported."""

    def _set(self, subject: str, reported: tuple[str, frozenset[str]] | None) -> None:
        if self._by_subject.get(subject) == reported:
            return
        if reported is None:
            del self._by_subject[subject]
        else:
            self._by_subject[subject] = reported
        for watcher in tuple(self._watchers):
            watcher()


_FACTS: Final = (Writer.DRIVER.value, StateKind.FACTS.value)
