"""The leader's state of nodes: what is kept, and until when."""

import pytest

from services.scheduler.node_state import NodeStates, PendingEviction


def failed_nodes(states: NodeStates) -> set[str]:
    """Return the nodes with a recorded failure."""
    return {name for name in "abc" if states.state_of(name).failure is not None}


def states_with_failures() -> NodeStates:
    states = NodeStates()
    for name in "abc":
        states.of_uid(name, f"uid-{name}").record_failure("write", "no", at=1.0)
    return states


def test_state_of_deleted_nodes_is_dropped() -> None:
    states = states_with_failures()
    states.retain({"a", "c"})
    assert failed_nodes(states) == {"a", "c"}


@pytest.mark.parametrize("in_progress", ["written", "evicted"])
def test_state_is_kept_while_effects_are_in_progress(in_progress: str) -> None:
    states = states_with_failures()
    if in_progress == "written":
        states.state_of("b").writing = True
    else:
        states.state_of("b").evictions["uid-pod"] = PendingEviction(since=1.0)
    states.retain({"a", "c"})
    assert failed_nodes(states) == {"a", "b", "c"}
    states.state_of("b").writing = False
    states.state_of("b").evictions.clear()
    states.retain({"a", "c"})
    assert failed_nodes(states) == {"a", "c"}


def test_a_new_node_of_the_same_name_inherits_only_the_pending_write() -> None:
    states = states_with_failures()
    states.state_of("b").writing = True
    state = states.of_uid("b", "uid-again")
    assert (state.failure, state.writing) == (None, True)
    assert states.of_uid("b", "uid-again") is state
