"""Who is granted a start at the edges: a question on its way, an answer at once, a bare node."""

from msgspec.structs import replace

from tests.unit.rollout.allocate.starting import (
    asked_of,
    checked,
    clear,
    decided,
    granted_to,
    of_target,
    open_pool,
)
from tests.unit.rollout.building import NOW, node, required


def test_an_answer_of_the_very_moment_of_the_question_counts() -> None:
    asked = checked(required("n0"), asked=NOW - 2, answered=NOW - 2)
    assert granted_to(open_pool(record=of_target()), asked) == ["n0"]


def test_a_bare_node_costs_nothing_of_what_may_be_unavailable() -> None:
    none = open_pool(record=of_target(), upgrade={"max_unavailable": 0})
    assert granted_to(none, checked(node("bare")), clear("n0")) == ["bare"]


def test_while_something_is_written_on_a_node_it_keeps_its_place() -> None:
    one = open_pool(record=of_target(), upgrade={"max_parallel_upgrades": 1})
    assert granted_to(one, clear("n0"), clear("n1")) == ["n0"]
    assert granted_to(one, clear("n0", writing=True), clear("n1")) == []


def test_nobody_is_asked_while_something_is_written_on_him() -> None:
    one = open_pool(record=of_target(), upgrade={"max_parallel_upgrades": 1})
    asleep = replace(required("n1"), writing=True)
    decision = decided(one, clear("n0"), asleep, required("n2"))
    assert list(asked_of(decision)) == ["n2"]
