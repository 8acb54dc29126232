"""What nodes report: handlers of their container runtimes, named diagnoses, the next kernel.

Kubelets tell the handlers too, except with containerd 1.7. Reports are kept during outages.
"""

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from libs.bus.port import Bus, LastPerSubject, StoredMessage
from libs.bus.recreated import RecreatedStream
from libs.contracts import subjects
from libs.contracts.diagnoses import Diagnosis
from libs.contracts.facts import Facts, NextKernel
from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage, decode
from libs.contracts.reports import (
    Evidence,
    Report,
    StateBody,
    StateKind,
    named_diagnoses,
    outdated_diagnoses,
)
from libs.contracts.subjects import STATE, NotASubject, State
from libs.runtime.clock import Clock

MAX_HANDLERS: Final = 8
"""The most handlers of a node that count."""


class _Reported(msgspec.Struct, frozen=True, kw_only=True):
    """What one report says that is needed here."""

    node_uid: str
    boot_id: str
    handlers: frozenset[str] | None = None
    """None: the report is of another kind."""
    diagnoses: tuple[Diagnosis, ...] = ()
    outdated: frozenset[Diagnosis] = frozenset()
    next_kernel: NextKernel | None = None


class ReportedHandlers:
    """Handlers and diagnoses by node; empty until `follow` is entered."""

    def __init__(self, clock: Clock) -> None:
        self._by_subject: dict[str, _Reported] = {}
        self._repeated = set[str]()
        self._stream = RecreatedStream(clock)
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
        return {
            each.node_uid: each.handlers
            for each in self._by_subject.values()
            if each.handlers is not None
        }

    def diagnoses(self) -> Mapping[tuple[str, str], tuple[Diagnosis, ...]]:
        """Return the diagnoses by the uid and boot of their node, each once."""
        found = defaultdict[tuple[str, str], dict[Diagnosis, None]](dict)
        for each in self._by_subject.values():
            found[each.node_uid, each.boot_id] |= dict.fromkeys(each.diagnoses)
        for each in self._by_subject.values():
            for outdated in each.outdated:
                found[each.node_uid, each.boot_id].pop(outdated, None)
        return {node: tuple(each) for node, each in found.items() if each}

    def next_kernels(self) -> Mapping[tuple[str, str], NextKernel]:
        """Return the kernels that nodes boot next, by the uid and boot of their node."""
        return {
            (each.node_uid, each.boot_id): each.next_kernel
            for each in self._by_subject.values()
            if each.next_kernel is not None
        }

    def on_change(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher` after each change, until the returned function is called."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    # Called by the bus (`Follower`).

    def began(self, recreated: bool, /) -> None:
        """Prepare for every report to be repeated."""
        self._stream.began(recreated)
        self._repeated.clear()

    def received(self, message: StoredMessage) -> None:
        """Keep what facts and evidence say; a malformed report changes nothing."""
        try:
            subject = subjects.parse(message.subject)
            if not isinstance(subject, State) or (subject.component, subject.kind) not in _READ:
                return
            self._repeated.add(message.subject)
            report = decode(Report, message.data)
            body = report.open()
        except (MalformedMessage, NotASubject):
            return
        self._set(message.subject, _reported(report, body, subject.component))

    def caught_up(self) -> None:
        """Drop the nodes that the stream did not repeat."""
        if not self._stream.is_repeated:
            return
        for subject in self._by_subject.keys() - self._repeated:
            self._set(subject, None)

    def lost(self) -> None:
        """Keep what was reported."""

    def _set(self, subject: str, reported: _Reported | None) -> None:
        if self._by_subject.get(subject) == reported:
            return
        if reported is None:
            del self._by_subject[subject]
        else:
            self._by_subject[subject] = reported
        for watcher in tuple(self._watchers):
            watcher()


_READ: Final = (
    (Writer.DRIVER.value, StateKind.FACTS.value),
    (Writer.DISCOVERY.value, StateKind.FACTS.value),
    (Writer.VALIDATOR.value, StateKind.EVIDENCE.value),
)


def _reported(report: Report, body: StateBody, component: str) -> _Reported | None:
    """Return what the report says; None: nothing."""
    handlers, obstacle, evidence, outdated = None, None, None, frozenset[Diagnosis]()
    if component == Writer.DISCOVERY:
        kernel = body.next_kernel if isinstance(body, Facts) else None
        if kernel is None or not kernel.release:
            return None
        return _Reported(node_uid=report.node_uid, boot_id=report.boot_id, next_kernel=kernel)
    if isinstance(body, Facts):
        known = body.container_runtime
        handlers = frozenset(known.handlers[:MAX_HANDLERS] if known is not None else ())
        obstacle = body.obstacle
        outdated = outdated_diagnoses(body)
    elif isinstance(body, Evidence):
        evidence = body
    return _Reported(
        node_uid=report.node_uid,
        boot_id=report.boot_id,
        handlers=handlers,
        diagnoses=named_diagnoses(evidence, obstacle),
        outdated=outdated,
    )
