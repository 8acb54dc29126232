"""Findings about policies: field, value, problem and remedy; and the verdict on a policy."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

import msgspec

from libs.contracts.words import excerpt


class Severity(StrEnum):
    ERROR = "error"
    """The object cannot be carried out: nothing new starts in its pool until this is fixed."""
    WARNING = "warning"
    """A part of the object has no effect, or not the intended one."""
    NOTE = "note"
    """The field is accepted but has no effect here."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One problem with one field."""

    field: str
    """Path from the top of the object: `spec.driver.version`."""
    value: str = ""
    """The field's value, shortened; empty where the field is not set."""
    problem: str
    quoted: str = ""
    """The problem in the exact words of the GPU Operator, which scripts match."""
    remedy: str = ""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return ": ".join(filter(None, (self._where, self.quoted, self.remedy)))

    @property
    def for_scripts(self) -> str:
        """The finding with the quoted words first, where scripts look for them."""
        ours = ": ".join(filter(None, (self._where, self.remedy)))
        return "; ".join(filter(None, (self.quoted, ours)))

    @property
    def _where(self) -> str:
        value = f" ({self.value})" if self.value else ""
        return f"{self.field}{value} {self.problem}"


REMEDY_WITHOUT_EFFECT: Final = "remove it, or keep it knowing that it has no effect"


def without_effect(field: str, value: Any, because: str) -> Finding:
    """Return the note on a value that another operator obeys."""
    return Finding(
        field=field,
        value=quote_value(value),
        problem=f"is accepted and has no effect here, because {because}",
        remedy=REMEDY_WITHOUT_EFFECT,
        severity=Severity.NOTE,
    )


def errors_of(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(found for found in findings if found.severity is Severity.ERROR)


def quote_value(value: Any) -> str:
    """Return a value of any type as text for a finding."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value) if abs(value) < 2**63 else "a number of more than 64 bits"
    if isinstance(value, str):
        return f'"{excerpt(value)}"'
    return excerpt(str(value)) if isinstance(value, float) else f"a {type(value).__name__}"


class Acceptance(StrEnum):
    """Whether a policy object takes effect."""

    ACTIVE = "active"
    IGNORED = "ignored"
    """Another object takes precedence."""
    DISABLED = "disabled"
    """Objects of its kind are not used."""
    CONFLICTING = "conflicting"
    """It conflicts with another object, and neither takes effect."""
    DELETING = "deleting"


class PolicyVerdict(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    name: str
    uid: str
    generation: int
    acceptance: Acceptance
    reasons: tuple[Finding, ...] = ()
    """Why the object is not active; empty if it is."""
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Return the findings that keep the object from being carried out."""
        return errors_of(self.findings)
