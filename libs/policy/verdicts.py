"""The verdict on each policy object: whether it takes effect, and all findings about it."""

from enum import StrEnum

import msgspec

from libs.policy.findings import Finding, Severity
from libs.policy.manifests import ParsedPolicy


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
        return tuple(found for found in self.findings if found.severity is Severity.ERROR)


class VerdictCollector:
    """Collect the acceptance of policy objects and the findings about them."""

    def __init__(self) -> None:
        self._policies: dict[tuple[str, str], ParsedPolicy] = {}
        self._acceptance: dict[tuple[str, str], Acceptance] = {}
        self._reasons: dict[tuple[str, str], list[Finding]] = {}
        self._findings: dict[tuple[str, str], list[Finding]] = {}

    def add_policy(self, parsed: ParsedPolicy) -> None:
        """Add an object as active, with the findings of its parsing."""
        key = _key(parsed)
        self._policies[key] = parsed
        self._acceptance[key] = Acceptance.ACTIVE
        self._reasons[key] = []
        self._findings[key] = list(parsed.findings)

    def set_acceptance(
        self, parsed: ParsedPolicy, acceptance: Acceptance, *reasons: Finding
    ) -> None:
        key = _key(parsed)
        self._acceptance[key] = acceptance
        self._reasons[key].extend(reasons)
        known = self._findings[key]
        known.extend(reason for reason in reasons if reason not in known)

    def add_findings(self, parsed: ParsedPolicy, *findings: Finding) -> None:
        self._findings[_key(parsed)].extend(findings)

    def errors(self, parsed: ParsedPolicy) -> tuple[Finding, ...]:
        """Return the errors found so far."""
        findings = self._findings[_key(parsed)]
        return tuple(found for found in findings if found.severity is Severity.ERROR)

    def verdicts(self) -> tuple[PolicyVerdict, ...]:
        """Return the verdicts, sorted by kind and name."""
        return tuple(self._verdict(key) for key in sorted(self._policies))

    def _verdict(self, key: tuple[str, str]) -> PolicyVerdict:
        policy = self._policies[key].policy
        return PolicyVerdict(
            kind=key[0],
            name=key[1],
            uid=policy.metadata.uid if policy else "",
            generation=policy.metadata.generation if policy else 0,
            acceptance=self._acceptance[key],
            reasons=tuple(self._reasons[key]),
            findings=tuple(self._findings[key]),
        )


def _key(parsed: ParsedPolicy) -> tuple[str, str]:
    return parsed.kind, parsed.policy.metadata.name if parsed.policy else ""
