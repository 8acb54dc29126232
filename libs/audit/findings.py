"""The result of an audit."""

from collections.abc import Mapping

import msgspec


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A broken promise."""

    invariant: str
    node: str = ""
    time: float = 0.0
    revision: int = 0
    """The revision that shows it; 0 where no revision does."""
    message: str
    """One sentence for people."""


class MissingSource(msgspec.Struct, frozen=True, kw_only=True):
    """An invariant, or a part of one, that could not be judged."""

    invariant: str
    source: str
    """What is missing, and for which part."""


AuditFinding = Violation | MissingSource


class AuditResult(msgspec.Struct, frozen=True, kw_only=True):
    violations: tuple[Violation, ...] = ()
    not_judged: Mapping[str, str] = {}
    """The missing sources by invariant. Violations found without them are still listed."""
