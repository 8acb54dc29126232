"""Stories of targets that prove themselves, and of those that do harm (I8)."""

from typing import Any

from libs.audit import Journal
from tests.unit.audit.journals import LABEL, TARGET, Story, found

FLEET = tuple(f"n{number}" for number in range(10))


def journal(story: Story, threshold: int | str = 2, **otherwise: Any) -> Journal:
    otherwise.setdefault("events", None)
    return story.journal(max_unavailable="100%", failure_threshold=threshold, **otherwise)


def of_i8(story: Story, threshold: int | str = 2, **otherwise: Any) -> list[int]:
    all_of_it = found(journal(story, threshold, **otherwise), faults=True)
    assert {invariant for invariant, _, _ in all_of_it} <= {"I8"}
    return [revision for _, _, revision in all_of_it]


def prove(story: Story, name: str, target: str = TARGET, label: str = LABEL) -> None:
    story.take(name, target=target, label=label)
    story.start(name)
    story.wait(10)
    story.validate(name)
    story.op(name, "validator", "validate", op=1)
    story.done(name)


def harm(story: Story, name: str, target: str = TARGET, label: str = LABEL) -> None:
    story.take(name, target=target, label=label)
    story.start(name)
    story.wait(10)
    story.fail(name)


def halted() -> Story:
    """Proven, then two failures; n4 was in flight before."""
    story = Story(*FLEET)
    prove(story, "n0")
    prove(story, "n1")
    story.take("n4")
    harm(story, "n2")
    harm(story, "n3")
    story.wait(10)
    return story
