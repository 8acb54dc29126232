"""Stories of targets that prove themselves, and of those that do harm (I8)."""

from typing import Any

from libs.audit import AuditJournal
from tests.unit.audit.builders import LABEL, TARGET, JournalBuilder, violations_of

FLEET = tuple(f"n{number}" for number in range(10))


def journal(story: JournalBuilder, threshold: int | str = 2, **otherwise: Any) -> AuditJournal:
    otherwise.setdefault("events", None)
    return story.journal(max_unavailable="100%", failure_threshold=threshold, **otherwise)


def of_i8(story: JournalBuilder, threshold: int | str = 2, **otherwise: Any) -> list[int]:
    all_of_it = violations_of(journal(story, threshold, **otherwise), faults=True)
    assert {invariant for invariant, _, _ in all_of_it} <= {"I8"}
    return [revision for _, _, revision in all_of_it]


def prove(story: JournalBuilder, name: str, target: str = TARGET, label: str = LABEL) -> None:
    story.take_lease(name, target=target, label=label)
    story.start(name)
    story.advance(10)
    story.validate(name)
    story.op(name, "validator", "validate", op=1)
    story.finish(name)


def harm(story: JournalBuilder, name: str, target: str = TARGET, label: str = LABEL) -> None:
    story.take_lease(name, target=target, label=label)
    story.start(name)
    story.advance(10)
    story.fail(name)


def halted() -> JournalBuilder:
    """Proven, then two failures; n4 was in flight before."""
    story = JournalBuilder(*FLEET)
    prove(story, "n0")
    prove(story, "n1")
    story.take_lease("n4")
    harm(story, "n2")
    harm(story, "n3")
    story.advance(10)
    return story
