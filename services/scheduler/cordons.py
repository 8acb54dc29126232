"""Cordons of others: which node was cordoned or uncordoned, and with which program. Pure.

A cordon of Sluice's changes together with its record or its lease, and has its own events.
"""

from typing import TypeAlias

from libs.contracts.events import EditEvent
from libs.contracts.node import NodeRecord, user_of
from libs.rollout.cordons import needs_cordon
from libs.rollout.views.node import Lease, MalformedAnnotation, NodeField, NodeView

_CORDON = NodeField.CORDON
_Ours: TypeAlias = tuple[NodeRecord | MalformedAnnotation | None, Lease]
"""What changes with a cordon of Sluice's."""


class Cordons:
    """The cordons of all nodes, as last seen by one leader."""

    def __init__(self) -> None:
        self._uids: dict[str, str] = {}
        self._cordoned: dict[str, _Ours] = {}

    def forget(self, name: str) -> None:
        self._uids.pop(name, None)
        self._cordoned.pop(name, None)

    def change_of(self, node: NodeView) -> EditEvent | None:
        """Return what somebody else changed since the node was last seen; None: nothing."""
        is_known = self._uids.get(node.name) == node.uid
        self._uids[node.name] = node.uid
        before = self._cordoned.pop(node.name, None)
        if node.cordoned:
            self._cordoned[node.name] = (node.record, node.lease)
        if not is_known or node.cordoned is (before is not None):
            return None
        if before is None:
            others = node.other_managers(_CORDON)
            return _edit(node, others[-1]) if others else None
        # Sluice cordons a node again that was uncordoned during its upgrade, with an event.
        if before != (node.record, node.lease) or _is_restored(node):
            return None
        managers = node.field_managers.get(_CORDON, ())
        return _edit(node, managers[-1] if managers else "")


def _is_restored(node: NodeView) -> bool:
    record = node.current_record
    return record is not None and node.upgrade_lease is not None and needs_cordon(record)


def _edit(node: NodeView, manager: str) -> EditEvent:
    done = "cordoned" if node.cordoned else "uncordoned"
    # A removal leaves no name.
    user = user_of(manager) if manager else "somebody, who is not recorded"
    return EditEvent(
        field=_CORDON.value,
        manager=manager,
        before=_text(not node.cordoned),
        after=_text(node.cordoned),
        done=f"{done} by {user}",
    )


def _text(cordoned: bool) -> str:
    return "true" if cordoned else "false"
