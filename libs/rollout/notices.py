"""Notices for people; they name the field manager that an edit or a request came from."""

from libs.rollout.decision import Notice, NoticeKind
from libs.rollout.views.node import NodeField, NodeView


def field_writer(node: NodeView, field: NodeField) -> str:
    """Return the manager that wrote this field last; a removal leaves no name."""
    others = node.other_managers(field)
    return node.last_managers.get(field) or (others[-1] if others else "an unknown manager")


def edit_notice(
    node: NodeView, field: NodeField, *, before: str, after: str, message: str
) -> Notice:
    return Notice(
        kind=NoticeKind.EDIT,
        field=field.value,
        manager=field_writer(node, field),
        before=before,
        after=after,
        message=message,
    )


def request_notice(node: NodeView, field: NodeField, asked: str, message: str) -> Notice:
    return Notice(
        kind=NoticeKind.REQUEST,
        field=field.value,
        manager=field_writer(node, field),
        after=asked,
        message=message,
    )
