"""Who cordoned a node, or had it skipped, as far as the API server's records show it. Pure."""

from typing import Final

from libs.contracts.node import MANAGER, SKIP_LABEL, user_of
from libs.kube.authors import Author, last_owner
from libs.kube.ownership import OwnedFields
from libs.kube.views import ManagedFields, Node, parse_time

SLUICE: Final = Author(name="Sluice")
"""Without a time: the scheduler writes with each step."""


def cordoned_by(node: Node) -> Author | None:
    """Return the last program but Sluice that cordoned the node, or Sluice; None: not known."""
    if not node.spec.unschedulable:
        return None
    entries = node.metadata.managed_fields
    other = last_owner((each for each in entries if each.manager != MANAGER), _has_cordon)
    if other is None:
        return SLUICE if last_owner(entries, _has_cordon) is not None else None
    return _author(other)


def skipped_by(node: Node) -> Author | None:
    """Return the last program that wrote the node's skip label; None: it has none, or no name."""
    if node.metadata.labels.get(SKIP_LABEL) != "true":
        return None
    owner = last_owner(node.metadata.managed_fields, _has_skip_label)
    return None if owner is None else _author(owner)


def _author(entry: ManagedFields) -> Author:
    return Author(name=user_of(entry.manager), at=parse_time(entry.time) if entry.time else None)


def _has_skip_label(owned: OwnedFields) -> bool:
    return f"f:{SKIP_LABEL}" in owned.metadata.labels


def _has_cordon(owned: OwnedFields) -> bool:
    return "f:unschedulable" in owned.spec
