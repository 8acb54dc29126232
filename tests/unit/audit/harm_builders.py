"""Journals of targets that are proven, fail or are halted (I8)."""

from typing import Any

from libs.audit import AuditJournal
from tests.unit.audit.builders import LABEL, TARGET, JournalBuilder, violations_of

FLEET = tuple(f"n{number}" for number in range(10))


def journal(builder: JournalBuilder, threshold: int | str = 2, **overrides: Any) -> AuditJournal:
    overrides.setdefault("events", None)
    return builder.journal(max_unavailable="100%", failure_threshold=threshold, **overrides)


def i8_violations(builder: JournalBuilder, threshold: int | str = 2, **overrides: Any) -> list[int]:
    violations = violations_of(journal(builder, threshold, **overrides), faults=True)
    assert {invariant for invariant, _, _ in violations} <= {"I8"}
    return [revision for _, _, revision in violations]


def upgrade_successfully(
    builder: JournalBuilder, name: str, target: str = TARGET, label: str = LABEL
) -> None:
    builder.lease_and_start(name, target=target, label=label)
    builder.advance(10)
    builder.pass_validation(name)
    builder.finish(name)


def fail_upgrade(
    builder: JournalBuilder, name: str, target: str = TARGET, label: str = LABEL
) -> None:
    builder.lease_and_start(name, target=target, label=label)
    builder.advance(10)
    builder.fail(name)


def halted_target() -> JournalBuilder:
    """Return a journal with a proven target and two failures; n4 was in flight before."""
    builder = JournalBuilder(*FLEET)
    upgrade_successfully(builder, "n0")
    upgrade_successfully(builder, "n1")
    builder.take_lease("n4")
    fail_upgrade(builder, "n2")
    fail_upgrade(builder, "n3")
    builder.advance(10)
    return builder
