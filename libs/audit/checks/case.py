"""The input of every check: one journal, replayed once for all of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

from libs.audit.findings import Violation
from libs.audit.replay.changes import NodeChange
from libs.audit.replay.pool_availability import PoolAvailability
from libs.audit.replay.timeline import Timeline
from libs.contracts.commands import CommandKind
from libs.contracts.events import Event, EventBody, EventKind
from libs.contracts.journal import Entry
from libs.contracts.message import MalformedMessage
from libs.contracts.records import AuditJournal

STALE_SECONDS: Final = 90.0
"""Nothing that lowers capacity starts on a source older than this (docs/states.md#freshness)."""

ROUND_SECONDS: Final = 3.0
"""The longest time between a decision and its write: no changing request takes longer."""

SKEW_SECONDS: Final = 2.0
"""The largest difference between the clocks of two machines."""

CHANGING_COMMANDS: Final = frozenset({CommandKind.SWAP.value, CommandKind.INSTALL.value})
"""Commands that change a machine."""

NODES: Final = "nodes"
"""The source of Nodes in the `seen` field of a record."""

_AUDITED_EVENTS: Final = frozenset(
    {EventKind.WAIT, EventKind.STEP, EventKind.COMMAND, EventKind.EVIDENCE}
)


class AuditCase:
    """One journal to be judged."""

    def __init__(self, journal: AuditJournal) -> None:
        self.journal = journal
        self.revisions = journal.revisions or ()
        self.entries: Sequence[Entry] = journal.entries or ()
        self.events = journal.events or ()
        self.lost_journals = journal.lost_journals
        self.timeline = Timeline(self.revisions, journal.start)
        self.availability = PoolAvailability(self.timeline, journal.pools)

    @cached_property
    def decoded_events(self) -> list[tuple[Event, EventBody]]:
        """The events of the audited kinds, with their bodies."""
        return list(_decoded(self.events))

    @cached_property
    def writes(self) -> list[NodeChange]:
        """The scheduler's writes to Nodes."""
        return [change for change in self.timeline.changes if change.ours]

    @cached_property
    def lowering_writes(self) -> list[NodeChange]:
        """The scheduler's writes that made an available node unavailable, other than failures."""
        return [change for change in self.writes if self._lowers(change)]

    def _lowers(self, change: NodeChange) -> bool:
        uid, before, after = change.node.uid, change.before, change.after
        if before.unavailable or after.failed:
            return False
        # A gate may open between the decision and the write; no precondition guards against that.
        seen = self.revision_seen(change)
        positions = (
            change.position - 1,
            change.position if seen is None else self.timeline.position_of(seen),
        )
        if any(self.availability.driverless(uid, position) for position in positions):
            return False
        return after.leased_away or after.cordoned

    def revision_seen(self, change: NodeChange) -> int | None:
        """Return the revision of Nodes on which, by its record, a write was decided."""
        return revision_in(change.after.record.seen, NODES) if change.after.record else None


def _decoded(events: Iterable[Event]) -> Iterator[tuple[Event, EventBody]]:
    for event in events:
        if event.kind in _AUDITED_EVENTS:
            # A malformed event is of a newer writer; the tests of messages find the other causes.
            with suppress(MalformedMessage):
                yield event, event.open()


def revision_in(seen: Mapping[str, str], source: str) -> int | None:
    """Return the revision seen of a source; None where it is missing or no number."""
    text = seen.get(source, "")
    return int(text) if text.isascii() and text.isdigit() else None


def write_violation(invariant: str, change: NodeChange, message: str) -> Violation:
    """Return a violation by a write to a Node."""
    return Violation(
        invariant=invariant,
        node=change.node.name,
        time=change.revision.time,
        revision=change.revision.revision,
        message=message,
    )


def agent_violation(invariant: str, entry: Entry, message: str) -> Violation:
    """Return a violation by an agent."""
    return Violation(invariant=invariant, node=entry.node, time=entry.time, message=message)
