"""What the audit answers."""

from collections.abc import Mapping

import msgspec


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A promise that was not kept."""

    invariant: str
    node: str = ""
    time: float = 0.0
    revision: int = 0
    """Where it can be seen; 0: in no revision."""
    message: str
    """One sentence for a person."""


class MissingSource(msgspec.Struct, frozen=True, kw_only=True):
    """An invariant, or a part of it, that nobody could judge."""

    invariant: str
    source: str
    """What is missing, and for which part."""


AuditFinding = Violation | MissingSource


class AuditResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a journal says of the invariants."""

    violations: tuple[Violation, ...] = ()
    not_judged: Mapping[str, str] = {}
    """By invariant: which source is missing. Violations that show all the same are still named."""
