"""How an edit or a request is told to people: with the name of the manager who made it."""

from collections.abc import Iterator

from libs.contracts.node import DRIVER_LABEL, STATE_LABEL, Record
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Note, Told, Wait
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import Field, NodeView
from libs.rollout.waiting import wait
from libs.rollout.writes import upgrading


def writer(node: NodeView, field: Field) -> str:
    """Who wrote this field last, as far as the API server knows: what is removed leaves no name."""
    others = node.others(field)
    return node.writers.get(field) or (others[-1] if others else "somebody")


def edit(node: NodeView, field: Field, *, before: str, after: str, message: str) -> Note:
    """Somebody edited what is ours."""
    return Note(
        told=Told.EDIT,
        field=field.value,
        manager=writer(node, field),
        before=before,
        after=after,
        message=message,
    )


def request(node: NodeView, field: Field, asked: str, message: str) -> Note:
    """Somebody asked for something."""
    return Note(
        told=Told.REQUEST,
        field=field.value,
        manager=writer(node, field),
        after=asked,
        message=message,
    )


def twice(node: NodeView, record: Record, now: Instant) -> Wait:
    """The second edit in one attempt is not taken back: who edits what, all of it."""
    found = list(_differing(node, record))
    who = " and ".join(dict.fromkeys(writer(node, field) for field, _, _, _ in found))
    said = "; ".join(
        f"{key} is {there or 'gone'}, and the record says {ours or 'none'}"
        for _, key, there, ours in found
    )
    said = f"edited by {who}, for the second time in this attempt: {said}"
    return wait(WaitCode.LABEL_EDITED, said, now, who=f"{who}, by putting it back; then a retry")


def _differing(node: NodeView, record: Record) -> Iterator[tuple[Field, str, str, str]]:
    if node.state != record.state:
        yield Field.STATE, STATE_LABEL, node.state, record.state
    in_flight = record.started and upgrading(node) is not None
    if in_flight and node.driver_label != record.label:
        yield Field.DRIVER, DRIVER_LABEL, node.driver_label, record.label
