"""Who cordoned a node, as far as the API server's records show it. Pure."""

from typing import Final

import msgspec

from libs.contracts.node import MANAGER
from libs.kube.ownership import owned_fields
from libs.kube.views import ManagedFields, Node, parse_time

SLUICE: Final = "Sluice"


class Cordoner(msgspec.Struct, frozen=True, kw_only=True):
    """The program that cordoned a node: the user is not recorded."""

    name: str
    """Its field manager; of the scheduler, `Sluice`."""
    before: float | None = None
    """When a field of its was last written, in Unix seconds: the cordon is at least as old. None:
    not known, or Sluice, which writes with each step."""


def cordoned_by(node: Node) -> Cordoner | None:
    """Return the last program but Sluice that cordoned the node, or Sluice; None: not known."""
    if not node.spec.unschedulable:
        return None
    owners = sorted(filter(_owns_cordon, node.metadata.managed_fields), key=lambda each: each.time)
    others = [each for each in owners if each.manager != MANAGER]
    owner = next(reversed(others or owners), None)
    if owner is None:
        return None
    if owner.manager == MANAGER:
        return Cordoner(name=SLUICE)
    return Cordoner(name=owner.manager, before=parse_time(owner.time) if owner.time else None)


def _owns_cordon(entry: ManagedFields) -> bool:
    try:
        return not entry.subresource and "f:unschedulable" in owned_fields(entry).spec
    except ValueError:
        return False
