"""What is kept about nodes, and of whom."""

import pytest

from services.scheduler.memory import Going, Memory


def known(memory: Memory) -> set[str]:
    """Whose trouble is remembered."""
    return {name for name in "abc" if memory.of(name).trouble is not None}


def troubled() -> Memory:
    memory = Memory()
    for name in "abc":
        memory.see(name, f"uid-{name}").failed("write", "no", at=1.0)
    return memory


def test_of_nodes_that_are_gone_nothing_is_kept() -> None:
    memory = troubled()
    memory.keep({"a", "c"})
    assert known(memory) == {"a", "c"}


@pytest.mark.parametrize("being", ["written", "emptied"])
def test_as_long_as_something_of_it_is_under_way_all_is_kept(being: str) -> None:
    memory = troubled()
    if being == "written":
        memory.of("b").writing = True
    else:
        memory.of("b").going["uid-pod"] = Going(since=1.0)
    memory.keep({"a", "c"})
    assert known(memory) == {"a", "b", "c"}
    memory.of("b").writing = False
    memory.of("b").going.clear()
    memory.keep({"a", "c"})
    assert known(memory) == {"a", "c"}


def test_another_node_of_its_name_has_nothing_of_it_but_the_write_that_is_under_way() -> None:
    memory = troubled()
    memory.of("b").writing = True
    known = memory.see("b", "uid-again")
    assert (known.trouble, known.writing) == (None, True)
    assert memory.see("b", "uid-again") is known
