"""Policy objects during the assembly of pools, each with the verdict on it so far."""

from collections.abc import Iterable, Sequence

from libs.contracts.words import first_few
from libs.policy.findings import (
    Acceptance,
    Finding,
    PolicyVerdict,
    Severity,
    errors_of,
    quote_value,
)
from libs.policy.manifests import Policy


class PolicyEntry:
    """A policy object and the verdict on it so far."""

    def __init__(self, kind: str, policy: Policy, findings: Iterable[Finding]) -> None:
        self.kind = kind
        self.policy = policy
        self.metadata = policy.metadata
        self.acceptance = Acceptance.ACTIVE
        self.reasons: list[Finding] = []
        self.findings = list(findings)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return errors_of(self.findings)

    def reject(self, acceptance: Acceptance, *reasons: Finding) -> None:
        self.acceptance = acceptance
        self.reasons.extend(reasons)
        self.findings.extend(reason for reason in reasons if reason not in self.findings)

    def verdict(self) -> PolicyVerdict:
        return PolicyVerdict(
            kind=self.kind,
            name=self.metadata.name,
            uid=self.metadata.uid,
            generation=self.metadata.generation,
            acceptance=self.acceptance,
            reasons=tuple(self.reasons),
            findings=tuple(self.findings),
        )


def about_name(
    entry: PolicyEntry, problem: str, remedy: str, quoted: str = "", *, error: bool = False
) -> Finding:
    """Return a finding about a whole object: a warning, unless it is an `error`."""
    return Finding(
        field="metadata.name",
        value=quote_value(entry.metadata.name),
        problem=problem,
        quoted=quoted,
        remedy=remedy,
        severity=Severity.ERROR if error else Severity.WARNING,
    )


def uncovered_nodes(uncovered: Sequence[str]) -> Finding:
    """Return the finding about GPU nodes that no NVIDIADriver selects."""
    return Finding(
        severity=Severity.WARNING,
        field="spec.driver.useNvidiaDriverCRD",
        value="true",
        problem="leaves GPU nodes without a driver: no NVIDIADriver selects"
        f" {first_few(uncovered, 1)}",
        remedy="create one that selects them, or one with spec.default true",
    )
