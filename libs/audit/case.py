"""The input and the output of every check: one journal, replayed once for all, and the findings."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

import msgspec

from libs.audit.clocks import ClockSteps
from libs.audit.pools import PoolAvailability
from libs.audit.timeline import NodeChange, Timeline
from libs.contracts.commands import CommandKind
from libs.contracts.events import Event, EventBody, EventKind
from libs.contracts.journal import Entry, Revision
from libs.contracts.message import MalformedMessage
from libs.contracts.records import AuditJournal

STALE_SECONDS: Final = 90.0
"""Nothing that lowers capacity starts on a source older than this (docs/states.md#freshness)."""

ROUND_SECONDS: Final = 3.0
"""The longest time between a decision and its write: no changing request takes longer."""

CHANGING_COMMANDS: Final = frozenset(
    {CommandKind.SWAP.value, CommandKind.INSTALL.value, CommandKind.MIG.value}
)
"""Commands that change a machine."""

NODES: Final = "nodes"
"""The source of Nodes in the `seen` field of a record."""

_AUDITED_EVENTS: Final = frozenset(
    {EventKind.WAIT, EventKind.STEP, EventKind.COMMAND, EventKind.EVIDENCE}
)


JOURNAL: Final = "the journal of"
"""Begins the name of a missing source that is the journal of one agent."""


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A violation of an invariant."""

    invariant: str
    node: str = ""
    time: float = 0.0
    revision: int = 0
    """The revision that shows the violation; 0 where no revision does."""
    message: str
    """One sentence for people."""


class MissingSource(msgspec.Struct, frozen=True, kw_only=True):
    """An invariant, or a part of one, that could not be judged."""

    invariant: str
    source: str
    """What is missing, and for which part."""


AuditFinding = Violation | MissingSource


def write_violation(invariant: str, change: NodeChange, message: str) -> Violation:
    """Return a violation by a write to a Node."""
    return revision_violation(invariant, change.revision, message, node=change.node.name)


def revision_violation(
    invariant: str, revision: Revision, message: str, *, node: str = ""
) -> Violation:
    return Violation(
        invariant=invariant,
        node=node,
        time=revision.time,
        revision=revision.revision,
        message=message,
    )


def agent_violation(invariant: str, entry: Entry, message: str) -> Violation:
    """Return a violation by an agent."""
    return Violation(invariant=invariant, node=entry.node, time=entry.time, message=message)


def event_violation(invariant: str, event: Event, message: str) -> Violation:
    return Violation(invariant=invariant, node=event.node, time=event.at, message=message)


class AuditCase:
    """One journal to be judged."""

    def __init__(self, journal: AuditJournal) -> None:
        self.journal = journal
        self.revisions = journal.revisions or ()
        self.entries: Sequence[Entry] = journal.entries or ()
        self.events = journal.events or ()
        self.timeline = Timeline(self.revisions, journal.start)
        self.availability = PoolAvailability(self.timeline, journal.pools)
        self.clocks = ClockSteps(self.revisions, self.entries, journal.clocks_ahead)

    def has_journal(self, uid: str, component: str, since: float) -> bool:
        """Report whether the journal of an agent has every entry from a time on."""
        if self.journal.journals_since is None:
            return True
        complete = self.journal.journals_since.get((uid, component))
        return complete is not None and complete <= since

    @cached_property
    def decoded_events(self) -> list[tuple[Event, EventBody]]:
        """The events of the audited kinds, with their bodies."""
        decoded: list[tuple[Event, EventBody]] = []
        for event in self.events:
            if event.kind in _AUDITED_EVENTS:
                # Only a newer writer sends malformed events: the tests of messages exclude others.
                with suppress(MalformedMessage):
                    decoded.append((event, event.open()))
        return decoded

    @cached_property
    def writes(self) -> list[NodeChange]:
        """The scheduler's writes to Nodes."""
        return [change for change in self.timeline.changes if change.by_scheduler]

    @cached_property
    def lowering_writes(self) -> list[NodeChange]:
        """The scheduler's writes that made an available node unavailable, other than failures."""
        return [change for change in self.writes if self._lowers(change)]

    def _lowers(self, change: NodeChange) -> bool:
        before, after = change.before, change.after
        if before.unavailable or after.failed or not (after.leased_away or after.cordoned):
            return False
        # A gate may open between the decision and the write; no precondition guards against that.
        seen = self.revision_seen(change)
        decided = change.position if seen is None else self.timeline.position_of(seen)
        return not any(
            self.availability.driverless(change.node.uid, position)
            for position in (change.position - 1, decided)
        )

    def revision_seen(self, change: NodeChange) -> int | None:
        """Return the revision of Nodes on which, by its record, a write was decided."""
        return revision_in(change.after.record.seen, NODES) if change.after.record else None


def revision_in(seen: Mapping[str, str], source: str) -> int | None:
    """Return the revision seen of a source; None where it is missing or no number."""
    text = seen.get(source, "")
    return int(text) if text.isascii() and text.isdigit() else None


def hidden_orders(case: AuditCase) -> Iterator[AuditFinding]:
    """Say what is not judged where a clock went back or is wrong."""
    if seconds := case.clocks.largest:
        apart = f"the order of what is less than {seconds:.0f} s apart"
        source = f"{apart}: a clock is wrong, or was put back"
        for invariant in ("I1", "I2", "I3", "I5", "I10"):
            yield MissingSource(invariant=invariant, source=source)
