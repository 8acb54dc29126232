"""The lease of a person, for whom a node is kept free of operations (docs/states.md#persons-lease).

A person takes it on a node at rest, and claims it on a node in flight: the operation ends first,
unchanged where it has not yet started. The engine never writes or ends such a lease.
"""

from datetime import UTC, datetime
from typing import Final

from libs.contracts.node import LeaseOwner, NodeLease
from libs.contracts.words import excerpt
from libs.rollout.views.node import MalformedAnnotation, NodeView

_MAX_TEXT: Final = 200
"""Characters of what a person wrote that are repeated."""


def has_persons_lease(node: NodeView) -> bool:
    lease = node.current_lease
    return lease is not None and lease.owner is LeaseOwner.HUMAN


def claimed_by(node: NodeView) -> str:
    """Return who waits for the operation on the node to end; empty: nobody."""
    return person(node.claim) if isinstance(node.claim, NodeLease) else ""


def person(lease: NodeLease) -> str:
    """Return who took a lease, or that a person did."""
    return excerpt(lease.who, _MAX_TEXT) or "a person"


def left_out_reason(node: NodeView) -> str:
    """Return how people keep the node out of rollouts, in a few words; empty: they do not."""
    if node.excluded:
        return "excluded"
    lease = node.claim if isinstance(node.claim, NodeLease) else node.current_lease
    if lease is not None and lease.owner is LeaseOwner.HUMAN:
        return f"{person(lease)} has it"
    return "skipped" if node.skip else ""


def describe_lease(node: NodeView) -> str:
    """Return who has the node, and why."""
    if isinstance(node.lease, MalformedAnnotation):
        return "the node is leased by an unknown owner (the annotation cannot be read)"
    lease = node.current_lease
    if lease is None or lease.owner is not LeaseOwner.HUMAN:
        return f"the node is leased by {lease.owner.value if lease is not None else 'nobody'}"
    reason = excerpt(lease.reason, _MAX_TEXT)
    told = f"{person(lease)} has the node{_since(lease.since)}"
    return f"{told}: {reason}" if reason else told


def _since(at: float) -> str:
    try:
        return f" since {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):  # people may write any number
        return ""


def lease_ended_by(node: NodeView) -> str:
    """Return who can end the lease of another owner, and how."""
    lease = node.current_lease
    if lease is None or lease.owner is not LeaseOwner.HUMAN:
        return "the owner of the lease, or an administrator, by removing the lease"
    return f"{person(lease)} or an administrator, by `sluice lease return {node.name}`"
