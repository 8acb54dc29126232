"""The arithmetic of docs/states.md#harm for one pool and target, kept anew from what happened."""

from bisect import bisect_right
from typing import Final

import msgspec

from libs.audit.replay.changes import NodeChange
from libs.audit.replay.nodes import ReplayedNode
from libs.contracts.node import Operation


class TargetCounts(msgspec.Struct):
    """One pool and target."""

    pool: str
    target: str
    threshold: int
    allowed: list[tuple[float, int]]
    """How many failures people accepted, and from when on; the first from the beginning."""
    in_flight: set[str] = msgspec.field(default_factory=set[str])
    in_flight_uncounted: set[str] = msgspec.field(default_factory=set[str])
    """In flight too, but failed on an earlier target: outside the counts, one at a time."""
    failed: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """Node uids, each with the place where it failed first; in that order."""
    validated: set[str] = msgspec.field(default_factory=set[str])

    @property
    def is_proven(self) -> bool:
        """Whether the budget alone bounds starts."""
        return len(self.validated) >= self.threshold

    @property
    def is_halted(self) -> bool:
        """Whether nothing may start now."""
        return len(self.failed) >= self.threshold + self.allowed[-1][1]

    @property
    def at_risk(self) -> set[str]:
        """Who counts while the target proves itself."""
        return self.in_flight | self.failed.keys()

    def accept_failures(self, failures: int, time: float) -> None:
        """A person named another number: the proof begins anew."""
        if failures != self.allowed[-1][1]:
            self.allowed.append((time, failures))
            self.validated.clear()

    def failure_allowance(self, since: float) -> int:
        """The highest that held at some moment since then."""
        first = bisect_right(self.allowed, since, key=lambda one: one[0])
        return self.threshold + max(failures for _, failures in self.allowed[max(first - 1, 0) :])

    def was_halted(self, place: int, since: float) -> bool:
        """Whether it was at a place, whatever people accepted since then."""
        failed = bisect_right(list(self.failed.values()), place)
        return failed >= self.failure_allowance(since)

    def validate(self, uid: str) -> None:
        """A node has evidence; a failure that was healed is none."""
        if uid not in self.failed:
            self.validated.add(uid)

    def remove(self, uid: str) -> None:
        """A node is in flight here no more."""
        self.in_flight.discard(uid)
        self.in_flight_uncounted.discard(uid)


_UNCOUNTED: Final = frozenset({Operation.VALIDATE, Operation.REMOVE})
"""What is no move to a target."""

AT_REST: Final = "(at rest)"
"""It failed on no target: what it ran for a while was validated again, and did not pass."""


class UpgradeHistory(msgspec.Struct):
    """What the counts ask of a node's past."""

    book: TargetCounts | None = None
    """Where it is in flight."""
    failed_on: str = ""
    """The target on which it failed first since it was last well, or that it did at rest."""
    proven_label: str = ""
    started: int = -1
    """The last token under which its driver was moved."""

    @classmethod
    def of(cls, facts: ReplayedNode) -> "UpgradeHistory":
        """One that the journal finds like this."""
        record = facts.record
        if record is None:
            return cls()
        proven = record.evidence.label if record.evidence and record.evidence.passed else ""
        target = AT_REST if record.outside else record.target
        return cls(
            failed_on=target if facts.failed else "",
            proven_label="" if facts.failed else proven,
            started=record.token if record.started else -1,
        )

    def is_abandoned(self, change: NodeChange) -> bool:
        """Whether somebody else took away its record, or its lease after the start."""
        return change.record_lost or (
            change.lease_ended is not None and change.lease_ended.token == self.started
        )

    def is_start(self, change: NodeChange) -> bool:
        """Whether a write moves its driver, for the first time under its lease."""
        record = change.after.record
        if record is None or self.started == record.token:
            return False
        return record.started or change.label_moved

    def is_restart(self, label: str) -> bool:
        """Whether it was proven with this label, so that it merely restarts what it runs."""
        return bool(label) and self.proven_label == label


def target_of(facts: ReplayedNode) -> str:
    """What a node is in flight to, if that counts."""
    if facts.upgrade is None or facts.record is None or facts.operation in _UNCOUNTED:
        return ""
    return facts.record.target
