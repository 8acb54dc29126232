"""What the counts of bounded harm ask of a node's past, and what one write says of it.

Must not know how many may start.
"""

from typing import Final

import msgspec

from libs.audit.checks.books import Book
from libs.audit.replay.happened import Change
from libs.audit.replay.nodes import Facts
from libs.contracts.node import Operation

_UNCOUNTED: Final = frozenset({Operation.VALIDATE, Operation.REMOVE})
"""What is no move to a target."""

AT_REST: Final = "(at rest)"
"""It failed on no target: what it ran for a while was validated again, and did not pass."""


class Past(msgspec.Struct):
    """What the counts ask of a node's past."""

    book: Book | None = None
    """Where it is in flight."""
    failed_on: str = ""
    """The target on which it failed first since it was last well, or that it did at rest."""
    proven_label: str = ""
    started: int = -1
    """The last token under which its driver was moved."""

    @classmethod
    def of(cls, facts: Facts) -> "Past":
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

    def abandoned(self, change: Change) -> bool:
        """Whether somebody else took away its record, or its lease after the start."""
        return change.lost or (change.ended is not None and change.ended.token == self.started)

    def starts(self, change: Change) -> bool:
        """Whether a write moves its driver, for the first time under its lease."""
        record = change.after.record
        if record is None or self.started == record.token:
            return False
        return record.started or change.moved

    def restarts(self, label: str) -> bool:
        """Whether it was proven with this label, so that it merely restarts what it runs."""
        return bool(label) and self.proven_label == label


def target_of(facts: Facts) -> str:
    """What a node is in flight to, if that counts."""
    if facts.upgrade is None or facts.record is None or facts.operation in _UNCOUNTED:
        return ""
    return facts.record.target
