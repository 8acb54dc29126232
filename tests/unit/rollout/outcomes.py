"""Readers of outcomes: each asserts the kind that a test expects, and returns it typed."""

from typing import TypeVar

from libs.contracts.node import NodeRecord
from libs.rollout.decision import Candidate, NodeOutcome, Notice, Step, Wait, WriteNode, WriteSlot

_Action = TypeVar("_Action")


def step_of(outcome: object) -> Step:
    assert isinstance(outcome, Step), outcome
    return outcome


def candidate_of(outcome: object) -> Candidate:
    assert isinstance(outcome, Candidate), outcome
    return outcome


def wait_of(outcome: object) -> Wait:
    """Return the wait of an outcome without actions."""
    if isinstance(outcome, Step):
        assert not outcome.actions, outcome
        outcome = outcome.wait
    assert isinstance(outcome, Wait), outcome
    return outcome


def only_action(outcome: NodeOutcome, kind: type[_Action]) -> _Action:
    """Return the only action of a step."""
    (action,) = step_of(outcome).actions
    assert isinstance(action, kind), action
    return action


def node_write(outcome: NodeOutcome) -> WriteNode:
    """Return the only Node write of a step that may have other actions."""
    (write,) = (action for action in step_of(outcome).actions if isinstance(action, WriteNode))
    return write


def record_in(outcome: NodeOutcome) -> NodeRecord:
    """Return the record that a step writes."""
    record = node_write(outcome).applied.record
    assert record is not None
    return record


def slot_writes(outcome: NodeOutcome) -> dict[str, object]:
    """Return the commands that a step writes into slots, by component."""
    actions = step_of(outcome).actions
    return {
        action.component: action.command.open()
        for action in actions
        if isinstance(action, WriteSlot)
    }


def notices_in(outcome: NodeOutcome) -> list[Notice]:
    return [action for action in step_of(outcome).actions if isinstance(action, Notice)]
