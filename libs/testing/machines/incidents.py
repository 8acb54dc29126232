"""What must never happen on a machine, where it did."""

from enum import StrEnum

import msgspec


class IncidentKind(StrEnum):
    """The kinds."""

    TWO_DRIVERS = "two drivers"
    """A driver container started while one of another pod ran."""
    OVER_ANOTHER = "over another"
    """A driver container set about replacing modules that another driver had loaded."""
    NOT_ADMITTED = "not admitted"
    """A driver container started in a boot in which no gate of its pod was answered."""
    UNDER_A_HOLDER = "under a holder"
    """The driver left the kernel while a process showed one of its devices open."""


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One case."""

    at: float
    """Unix seconds."""
    kind: IncidentKind
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"
