"""What is kept about nodes, and of whom."""

import pytest

from services.scheduler.node_state import NodeStates, PendingEviction


def known(memory: NodeStates) -> set[str]:
    """Whose trouble is remembered."""
    return {name for name in "abc" if memory.of(name).failure is not None}


def troubled() -> NodeStates:
    memory = NodeStates()
    for name in "abc":
        memory.of_uid(name, f"uid-{name}").record_failure("write", "no", at=1.0)
    return memory


def test_of_nodes_that_are_gone_nothing_is_kept() -> None:
    memory = troubled()
    memory.retain({"a", "c"})
    assert known(memory) == {"a", "c"}


@pytest.mark.parametrize("being", ["written", "emptied"])
def test_as_long_as_something_of_it_is_under_way_all_is_kept(being: str) -> None:
    memory = troubled()
    if being == "written":
        memory.of("b").writing = True
    else:
        memory.of("b").evictions["uid-pod"] = PendingEviction(since=1.0)
    memory.retain({"a", "c"})
    assert known(memory) == {"a", "b", "c"}
    memory.of("b").writing = False
    memory.of("b").evictions.clear()
    memory.retain({"a", "c"})
    assert known(memory) == {"a", "c"}


def test_another_node_of_its_name_has_nothing_of_it_but_the_write_that_is_under_way() -> None:
    memory = troubled()
    memory.of("b").writing = True
    known = memory.of_uid("b", "uid-again")
    assert (known.failure, known.writing) == (None, True)
    assert memory.of_uid("b", "uid-again") is known
