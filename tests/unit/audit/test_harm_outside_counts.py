"""I8: nodes that failed or lost their record before are outside the counts."""

import msgspec
import pytest

from libs.contracts.journal import Revision
from libs.contracts.node import (
    LEASE_ANNOTATION,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
)
from tests.unit.audit.builders import JournalBuilder
from tests.unit.audit.harm_builders import FLEET, fail_upgrade, i8_violations


def test_a_node_failed_on_an_earlier_target_is_outside_the_counts() -> None:
    builder = JournalBuilder(*FLEET)
    for name in ("n0", "n1"):
        fail_upgrade(builder, name, "t1", "label-1")
    builder.advance(100)
    builder.take_lease("n2")
    builder.take_lease("n3")
    outside(builder, "n0")
    assert i8_violations(builder) == []
    second = outside(builder, "n1")
    assert i8_violations(builder) == [second.revision]


def outside(builder: JournalBuilder, name: str) -> Revision:
    known = builder.records[name]
    builder.records[name] = msgspec.structs.replace(known, outside=True)
    return builder.take_lease(name)


def test_a_node_that_lost_its_record_in_flight_is_outside_the_counts() -> None:
    builder = JournalBuilder(*FLEET)
    builder.lease_and_start("n0", target="t1", label="label-1")
    builder.annotate("n0", RECORD_ANNOTATION, "garbled")
    builder.annotate("n0", LEASE_ANNOTATION, None)
    builder.annotate("n0", REQUEST_ANNOTATION, "adopt")
    builder.take_lease("n1")
    builder.take_lease("n2")
    outside(builder, "n0")
    assert i8_violations(builder) == []
    over = builder.take_lease("n3")
    assert i8_violations(builder) == [over.revision]


@pytest.mark.parametrize(("started", "problems"), [(True, 0), (False, 1)])
def test_a_node_that_lost_its_lease_after_its_start_is_outside_the_counts(
    started: bool, problems: int
) -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0", target="t1", label="label-1")
    if started:
        builder.start("n0")
    builder.annotate("n0", LEASE_ANNOTATION, None)
    builder.annotate("n0", REQUEST_ANNOTATION, "adopt")
    builder.take_lease("n1")
    builder.take_lease("n2")
    outside(builder, "n0")
    assert len(i8_violations(builder)) == problems


def test_a_node_outside_the_counts_neither_halts_nor_starts_on_a_halted_target() -> None:
    builder = JournalBuilder(*FLEET)
    for name in ("n0", "n1", "n2"):
        fail_upgrade(builder, name, "t1", "label-1")
    for name in ("n0", "n1", "n2"):
        builder.records[name] = msgspec.structs.replace(builder.records[name], outside=True)
    for name in ("n0", "n1", "n0", "n1"):
        fail_upgrade(builder, name)
    builder.advance(100)
    fail_upgrade(builder, "n3")
    fail_upgrade(builder, "n4")
    assert i8_violations(builder, 3) == []
    fail_upgrade(builder, "n5")
    builder.advance(10)
    late = builder.take_lease("n2")
    assert i8_violations(builder, 3) == [late.revision]
