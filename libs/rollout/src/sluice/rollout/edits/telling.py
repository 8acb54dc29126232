"""How an edit or a request is told to people: with the name of the manager who made it."""

from sluice.rollout.decision import Note, Told
from sluice.rollout.views.node import Field, NodeView


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
