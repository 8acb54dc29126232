"""What each object is told: where it stands among the others, and every finding about it."""

from enum import StrEnum

import msgspec

from libs.policy.findings import Finding, Severity
from libs.policy.manifests import ParsedPolicy


class Acceptance(StrEnum):
    """Where an object stands among the others."""

    ACTIVE = "active"
    IGNORED = "ignored"
    """Another one decides."""
    DISABLED = "disabled"
    """Its kind is not asked."""
    CONFLICTING = "conflicting"
    """It contradicts another one, and neither is followed."""
    DELETING = "deleting"


class PolicyVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one object is told."""

    kind: str
    name: str
    uid: str
    generation: int
    acceptance: Acceptance
    reasons: tuple[Finding, ...] = ()
    """Why it stands there; empty for one that is active."""
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What keeps it from being carried out."""
        return tuple(found for found in self.findings if found.severity is Severity.ERROR)


class VerdictCollector:
    """Collects standings and findings of the objects of one kind after the other."""

    def __init__(self) -> None:
        self._reads: dict[tuple[str, str], ParsedPolicy] = {}
        self._standings: dict[tuple[str, str], Acceptance] = {}
        self._because: dict[tuple[str, str], list[Finding]] = {}
        self._findings: dict[tuple[str, str], list[Finding]] = {}

    def add_policy(self, read: ParsedPolicy) -> None:
        """An object that is there, with what its reading said."""
        key = _key(read)
        self._reads[key] = read
        self._standings[key] = Acceptance.ACTIVE
        self._because[key] = []
        self._findings[key] = list(read.findings)

    def set_acceptance(self, read: ParsedPolicy, acceptance: Acceptance, *because: Finding) -> None:
        """It stands so, for these reasons."""
        key = _key(read)
        self._standings[key] = acceptance
        self._because[key].extend(because)
        self._findings[key].extend(one for one in because if one not in self._findings[key])

    def add_findings(self, read: ParsedPolicy, *findings: Finding) -> None:
        """More to say of it, wherever it stands."""
        self._findings[_key(read)].extend(findings)

    def errors(self, read: ParsedPolicy) -> tuple[Finding, ...]:
        """What keeps it from being carried out, as far as it is known."""
        found = self._findings[_key(read)]
        return tuple(one for one in found if one.severity is Severity.ERROR)

    def verdicts(self) -> tuple[PolicyVerdict, ...]:
        """What everybody is told, by kind and name."""
        return tuple(self._told(key) for key in sorted(self._reads))

    def _told(self, key: tuple[str, str]) -> PolicyVerdict:
        policy = self._reads[key].policy
        return PolicyVerdict(
            kind=key[0],
            name=key[1],
            uid=policy.metadata.uid if policy else "",
            generation=policy.metadata.generation if policy else 0,
            acceptance=self._standings[key],
            reasons=tuple(self._because[key]),
            findings=tuple(self._findings[key]),
        )


def _key(read: ParsedPolicy) -> tuple[str, str]:
    return read.kind, read.policy.metadata.name if read.policy else ""
