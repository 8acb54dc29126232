"""What Sluice and people wrote on a Node: its record, and the leases on it. Pure."""

from typing import Final

from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import (
    LEASE_ANNOTATION,
    LEASE_CLAIM_ANNOTATION,
    RECORD_ANNOTATION,
    LeaseOwner,
    NodeLease,
    NodeRecord,
)
from libs.contracts.queries import HeldNode
from libs.kube.views import Metadata

OPERATIONS: Final = frozenset({LeaseOwner.UPGRADE, LeaseOwner.MIG})
"""The owners of leases that the engine takes and ends."""
UNREADABLE: Final = "cannot be read"


def record_of(metadata: Metadata) -> NodeRecord | None:
    """Return the node's record, unless it is unreadable or of an earlier Node of this name."""
    text = metadata.annotations.get(RECORD_ANNOTATION, "")
    try:
        record = decode(NodeRecord, text.encode()) if text else None
    except MalformedMessage:
        return None
    return record if record is not None and record.node_uid == metadata.uid else None


def lease_of(metadata: Metadata, key: str = LEASE_ANNOTATION) -> NodeLease | str | None:
    """Return the lease or the claim; text if it is unreadable; None for one of an earlier Node."""
    text = metadata.annotations.get(key, "")
    try:
        lease = decode(NodeLease, text.encode()) if text else None
    except MalformedMessage:
        return UNREADABLE
    return lease if lease is not None and lease.node_uid == metadata.uid else None


def is_in_flight(metadata: Metadata) -> bool:
    """Whether an operation has the lease of the node.

    An unreadable lease counts as one: the scheduler does not touch its node either.
    """
    lease = lease_of(metadata)
    return lease == UNREADABLE or (isinstance(lease, NodeLease) and lease.owner in OPERATIONS)


def held_of(metadata: Metadata) -> HeldNode | None:
    """Return the lease that a person has on the node, or waits for."""
    lease = lease_of(metadata)
    claim = lease_of(metadata, LEASE_CLAIM_ANNOTATION)
    if isinstance(lease, NodeLease) and lease.owner is LeaseOwner.HUMAN:
        return _held(metadata.name, lease, waits=False)
    if isinstance(claim, NodeLease):
        return _held(metadata.name, claim, waits=lease is not None)
    return None


def _held(node: str, lease: NodeLease, *, waits: bool) -> HeldNode:
    return HeldNode(node=node, who=lease.who, since=lease.since, reason=lease.reason, waits=waits)
