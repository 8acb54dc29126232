"""The arithmetic of docs/states.md#harm for one pool and target, recomputed from the journal."""

from bisect import bisect_right
from typing import Final

import msgspec

from libs.audit.nodes import ReplayedNode
from libs.audit.timeline import NodeChange
from libs.contracts.node import Operation


class TargetCounts(msgspec.Struct):
    pool: str
    target: str
    threshold: int
    allowed: list[tuple[float, int]]
    """The numbers of failures that people accepted, each with the time since when."""
    in_flight: set[str] = msgspec.field(default_factory=set[str])
    in_flight_uncounted: set[str] = msgspec.field(default_factory=set[str])
    """Nodes in flight that failed on an earlier target: outside the counts, one at a time."""
    failed: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """By node uid the position of its first failure, in that order."""
    validated: set[str] = msgspec.field(default_factory=set[str])

    vanished: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """By node uid the position at which a started node was deleted, while this was unproven."""
    names_vanished: bool = False
    """Whether its Rollout names nodes that vanished."""
    completed: bool = False
    """Whether all nodes had the target, with at least one validation and without a halt."""

    @property
    def is_proven(self) -> bool:
        """Whether only the budget limits starts."""
        return self.completed or len(self.validated) >= self.threshold

    def complete(self) -> None:
        """Count the target as complete, as its Rollout says, if what is counted agrees."""
        self.completed |= bool(self.validated) and not (self.in_flight or self.is_halted)

    @property
    def is_halted(self) -> bool:
        return len(self.harmed) >= self.threshold + self.allowed[-1][1]

    @property
    def harmed(self) -> dict[str, int]:
        """The nodes that failed or, while the target is not proven, vanished: uid to position."""
        return self.failed if self.is_proven else {**self.vanished, **self.failed}

    @property
    def harm(self) -> str:
        """What happened to the harmed nodes, in a word or two."""
        return "failed" if self.harmed.keys() <= self.failed.keys() else "failed or vanished"

    @property
    def at_risk(self) -> set[str]:
        """The nodes that count until the target is proven."""
        return self.in_flight | self.harmed.keys()

    def accept_failures(self, failures: int, time: float) -> None:
        """Set the number of failures that a person accepts; a new number restarts the proof."""
        if failures != self.allowed[-1][1]:
            self.allowed.append((time, failures))
            # A release of vanished nodes keeps the proof.
            if self.failed or not (self.names_vanished or self.vanished):
                self.validated.clear()
                self.completed = False

    def failure_allowance(self, since: float) -> int:
        """Return the highest allowance that held at any time since then."""
        first = bisect_right(self.allowed, since, key=lambda item: item[0])
        return self.threshold + max(failures for _, failures in self.allowed[max(first - 1, 0) :])

    def was_halted(self, position: int, since: float) -> bool:
        """Report a halt at a position, under the highest allowance since a time."""
        harmed = sum(each <= position for each in self.harmed.values())
        return harmed >= self.failure_allowance(since)

    def validate(self, uid: str) -> None:
        """Count a node as validated, unless it failed before."""
        if uid not in self.failed:
            self.validated.add(uid)

    def remove(self, uid: str, *, vanished_at: int | None = None) -> None:
        """End the flight of a node; it vanished at a position if its Node was deleted then."""
        if vanished_at is not None and uid in self.in_flight and not self.is_proven:
            self.vanished[uid] = vanished_at
        self.in_flight.discard(uid)
        self.in_flight_uncounted.discard(uid)


_UNCOUNTED: Final = frozenset({Operation.VALIDATE, Operation.REMOVE, Operation.MIG})
"""Operations that do not move a node to a target."""

AT_REST: Final = "(at rest)"
"""The target of a node after its running driver failed a repeated validation."""


class UpgradeHistory(msgspec.Struct):
    """The part of a node's history on which the counts depend."""

    counts: TargetCounts | None = None
    """The counts in which the node is in flight."""
    failed_on: str = ""
    """The target of the first failure since the node last worked, or `AT_REST`."""
    proven_label: str = ""
    started: int = -1
    """The last token under which the driver was moved."""

    @classmethod
    def at_start(cls, node: ReplayedNode) -> "UpgradeHistory":
        record = node.record
        if record is None:
            return cls()
        proven = record.evidence.label if record.evidence and record.evidence.passed else ""
        target = AT_REST if record.outside else record.target
        return cls(
            failed_on=target if node.failed else "",
            proven_label="" if node.failed else proven,
            started=record.token if record.started else -1,
        )

    def is_abandoned(self, change: NodeChange) -> bool:
        """Report whether others removed the record, or the lease after the start."""
        return change.record_lost or (
            change.lease_ended is not None and change.lease_ended.token == self.started
        )

    def has_started(self, node: ReplayedNode) -> bool:
        """Report whether a node is past the start of the operation in its record."""
        return node.record is not None and node.record.token == self.started

    def is_start(self, change: NodeChange) -> bool:
        """Report whether a write is the first under its lease to move the driver."""
        record = change.after.record
        if record is None or self.started == record.token:
            return False
        return record.started or change.label_moved

    def is_restart(self, label: str) -> bool:
        """Report whether the node only restarts the driver that it was proven with."""
        return bool(label) and self.proven_label == label


def target_of(node: ReplayedNode) -> str:
    """Return the target to which a node is in flight; empty where the move does not count."""
    if node.upgrade is None or node.record is None or node.operation in _UNCOUNTED:
        return ""
    return node.record.target
