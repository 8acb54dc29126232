"""What each object is told: where it stands among the others, and every finding about it."""

from enum import StrEnum

import msgspec

from libs.policy.findings import Finding, Severity
from libs.policy.reading import Read


class Standing(StrEnum):
    """Where an object stands among the others."""

    ACTIVE = "active"
    IGNORED = "ignored"
    """Another one decides."""
    DISABLED = "disabled"
    """Its kind is not asked."""
    CONFLICTING = "conflicting"
    """It contradicts another one, and neither is followed."""
    DELETING = "deleting"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What one object is told."""

    kind: str
    name: str
    uid: str
    generation: int
    standing: Standing
    because: tuple[Finding, ...] = ()
    """Why it stands there; empty for one that is active."""
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What keeps it from being carried out."""
        return tuple(found for found in self.findings if found.severity is Severity.ERROR)


class Ledger:
    """Collects standings and findings of the objects of one kind after the other."""

    def __init__(self) -> None:
        self._reads: dict[tuple[str, str], Read] = {}
        self._standings: dict[tuple[str, str], Standing] = {}
        self._because: dict[tuple[str, str], list[Finding]] = {}
        self._findings: dict[tuple[str, str], list[Finding]] = {}

    def open(self, read: Read) -> None:
        """An object that is there, with what its reading said."""
        key = _key(read)
        self._reads[key] = read
        self._standings[key] = Standing.ACTIVE
        self._because[key] = []
        self._findings[key] = list(read.findings)

    def stand(self, read: Read, standing: Standing, *because: Finding) -> None:
        """It stands so, for these reasons."""
        key = _key(read)
        self._standings[key] = standing
        self._because[key].extend(because)
        self._findings[key].extend(one for one in because if one not in self._findings[key])

    def add(self, read: Read, *findings: Finding) -> None:
        """More to say of it, wherever it stands."""
        self._findings[_key(read)].extend(findings)

    def errors(self, read: Read) -> tuple[Finding, ...]:
        """What keeps it from being carried out, as far as it is known."""
        found = self._findings[_key(read)]
        return tuple(one for one in found if one.severity is Severity.ERROR)

    def told(self) -> tuple[Told, ...]:
        """What everybody is told, by kind and name."""
        return tuple(self._told(key) for key in sorted(self._reads))

    def _told(self, key: tuple[str, str]) -> Told:
        policy = self._reads[key].policy
        return Told(
            kind=key[0],
            name=key[1],
            uid=policy.metadata.uid if policy else "",
            generation=policy.metadata.generation if policy else 0,
            standing=self._standings[key],
            because=tuple(self._because[key]),
            findings=tuple(self._findings[key]),
        )


def _key(read: Read) -> tuple[str, str]:
    return read.kind, read.policy.metadata.name if read.policy else ""
