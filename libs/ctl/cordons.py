"""Who cordoned a node, as far as the API server's records show it. Pure."""

from typing import Final

from libs.contracts.node import MANAGER
from libs.kube.authors import Author, last_owner, user_of
from libs.kube.ownership import OwnedFields
from libs.kube.views import Node, parse_time

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
    return Author(name=user_of(other.manager), at=parse_time(other.time) if other.time else None)


def _has_cordon(owned: OwnedFields) -> bool:
    return "f:unschedulable" in owned.spec
