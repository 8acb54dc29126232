"""Whose cordon a node has, and what becomes of ours (docs/states.md#writes).

Two managers may own the cordon: dropping our share keeps the other's, so nothing of a person is
undone.
"""

from typing import Final

from libs.contracts.node import NodeRecord, Operation
from libs.rollout.views.node import NodeField, NodeView

NON_DISRUPTIVE: Final = frozenset({Operation.BRING_UP, Operation.VALIDATE})
"""A lease for one of these operations does not make its node unavailable."""


def unchanged_cordon(node: NodeView) -> bool | None:
    """Return the value to apply so that the cordon stays as it is."""
    return True if node.is_owned(NodeField.CORDON) and node.cordoned else None


def is_only_our_cordon(node: NodeView) -> bool:
    return node.is_owned(NodeField.CORDON) and not node.other_managers(NodeField.CORDON)


def has_adopted_cordon(node: NodeView, record: NodeRecord) -> bool:
    """Whether the cordon is still the one of the adopted upgrade.

    We co-own an adopted cordon. A manager that removes or sets it anew ends our share.
    """
    return record.cordon_adopted and node.is_owned(NodeField.CORDON)


def cordon_at_release(node: NodeView, record: NodeRecord, *, proven: bool) -> bool | None:
    """Return the value that drops our cordon; another owner's stays (docs/states.md#writes).

    A node that had failed stays cordoned until its driver is proven.
    """
    if node.keep_cordoned or (record.unproven and not proven):
        return unchanged_cordon(node)
    if has_adopted_cordon(node, record) and node.cordoned and not node.initially_cordoned:
        return False
    return None


def needs_cordon(record: NodeRecord) -> bool:
    return record.operation not in NON_DISRUPTIVE
