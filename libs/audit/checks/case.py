"""What every check is given: the journal, replayed once for all of them."""

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
"""A request that changes something takes no longer: what one round decided is written within it."""

SKEW_SECONDS: Final = 2.0
"""Clocks of machines differ by so much."""

CHANGING_COMMANDS: Final = frozenset({CommandKind.SWAP.value, CommandKind.INSTALL.value})
"""Commands that change a machine."""

NODES: Final = "nodes"
"""What the Nodes are called among the sources that a record has `seen`."""


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
        """Those of our events that are held against something, opened."""
        return list(_opened(self.events))

    @cached_property
    def writes(self) -> list[NodeChange]:
        """The scheduler's, to Nodes."""
        return [change for change in self.timeline.changes if change.ours]

    @cached_property
    def lowering_writes(self) -> list[NodeChange]:
        """Those of them that made an available node unavailable; a failure is none of ours."""
        return [change for change in self.writes if self._lowers(change)]

    def _lowers(self, change: NodeChange) -> bool:
        uid, before, after = change.node.uid, change.before, change.after
        if before.unavailable or after.failed:
            return False
        # A gate may open after somebody looked; nothing guards a write against that.
        seen = self.revision_seen(change)
        places = (
            change.position - 1,
            change.position if seen is None else self.timeline.position_of(seen),
        )
        if any(self.availability.driverless(uid, place) for place in places):
            return False
        return after.leased_away or after.cordoned

    def revision_seen(self, change: NodeChange) -> int | None:
        """The revision of Nodes on which a write says it was decided."""
        return revision_in(change.after.record.seen, NODES) if change.after.record else None


_HELD: Final = frozenset({EventKind.WAIT, EventKind.STEP, EventKind.COMMAND, EventKind.EVIDENCE})


def _opened(events: Iterable[Event]) -> Iterator[tuple[Event, EventBody]]:
    for event in events:
        if event.kind in _HELD:
            # One that cannot be read is of a newer writer, or shows in the tests of messages.
            with suppress(MalformedMessage):
                yield event, event.open()


def revision_in(seen: Mapping[str, str], source: str) -> int | None:
    """Of a source, if there is one that can be read."""
    said = seen.get(source, "")
    return int(said) if said.isascii() and said.isdigit() else None


def write_violation(invariant: str, change: NodeChange, message: str) -> Violation:
    """Something wrong about a write to a Node."""
    return Violation(
        invariant=invariant,
        node=change.node.name,
        time=change.revision.time,
        revision=change.revision.revision,
        message=message,
    )


def agent_violation(invariant: str, entry: Entry, message: str) -> Violation:
    """Something wrong about what an agent did."""
    return Violation(invariant=invariant, node=entry.node, time=entry.time, message=message)
