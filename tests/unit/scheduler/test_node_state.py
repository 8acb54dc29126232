"""The leader's state of nodes: what is kept, and until when."""

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


def test_state_of_deleted_nodes_is_dropped() -> None:
    memory = troubled()
    memory.retain({"a", "c"})
    assert known(memory) == {"a", "c"}


@pytest.mark.parametrize("being", ["written", "emptied"])
def test_state_is_kept_while_effects_are_in_progress(being: str) -> None:
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


def test_a_new_node_of_the_same_name_inherits_only_the_pending_write() -> None:
    memory = troubled()
    memory.of("b").writing = True
    known = memory.of_uid("b", "uid-again")
    assert (known.failure, known.writing) == (None, True)
    assert memory.of_uid("b", "uid-again") is known
