"""I8: who had failed or lost its record before is outside of what a target may harm."""

import msgspec
import pytest

from libs.contracts.journal import Revision
from libs.contracts.node import (
    LEASE_ANNOTATION,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
)
from tests.unit.audit.builders import JournalBuilder
from tests.unit.audit.harm_builders import FLEET, harm, of_i8


def test_who_had_failed_on_an_earlier_target_is_outside_the_counts() -> None:
    story = JournalBuilder(*FLEET)
    for name in ("n0", "n1"):
        harm(story, name, "t1", "label-1")
    story.advance(100)
    story.take_lease("n2")
    story.take_lease("n3")
    outside(story, "n0")
    assert of_i8(story) == []
    second = outside(story, "n1")
    assert of_i8(story) == [second.revision]


def outside(story: JournalBuilder, name: str) -> Revision:
    known = story.records[name]
    story.records[name] = msgspec.structs.replace(known, outside=True)
    return story.take_lease(name)


def test_who_lost_its_record_in_flight_counts_as_one_of_them() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0", target="t1", label="label-1")
    story.start("n0")
    story.annotate("n0", RECORD_ANNOTATION, "garbled")
    story.annotate("n0", LEASE_ANNOTATION, None)
    story.annotate("n0", REQUEST_ANNOTATION, "adopt")
    story.take_lease("n1")
    story.take_lease("n2")
    outside(story, "n0")
    assert of_i8(story) == []
    over = story.take_lease("n3")
    assert of_i8(story) == [over.revision]


@pytest.mark.parametrize(("started", "problems"), [(True, 0), (False, 1)])
def test_so_does_one_that_somebody_took_the_lease_of_after_its_start(
    started: bool, problems: int
) -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0", target="t1", label="label-1")
    if started:
        story.start("n0")
    story.annotate("n0", LEASE_ANNOTATION, None)
    story.annotate("n0", REQUEST_ANNOTATION, "adopt")
    story.take_lease("n1")
    story.take_lease("n2")
    outside(story, "n0")
    assert len(of_i8(story)) == problems


def test_it_can_neither_halt_a_target_nor_be_started_on_a_halted_one() -> None:
    story = JournalBuilder(*FLEET)
    for name in ("n0", "n1", "n2"):
        harm(story, name, "t1", "label-1")
    for name in ("n0", "n1", "n2"):
        story.records[name] = msgspec.structs.replace(story.records[name], outside=True)
    for name in ("n0", "n1", "n0", "n1"):
        harm(story, name)
    story.advance(100)
    harm(story, "n3")
    harm(story, "n4")
    assert of_i8(story, 3) == []
    harm(story, "n5")
    story.advance(10)
    late = story.take_lease("n2")
    assert of_i8(story, 3) == [late.revision]
