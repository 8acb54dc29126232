"""The lease of a person on a node: what shows it, and what takes it and returns it. Pure."""

from collections.abc import Collection
from typing import Any

from libs.contracts.message import encode
from libs.contracts.node import (
    LEASE_ANNOTATION,
    LEASE_CLAIM_ANNOTATION,
    LeaseOwner,
    NodeLease,
)
from libs.contracts.queries import HeldNode
from libs.ctl.cordons import SLUICE, cordoned_by
from libs.ctl.edits import Edit
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.text import clock_time, duration, plain
from libs.fleet.pools import resume_command
from libs.fleet.records import UNREADABLE, held_of, is_in_flight, lease_of, record_of
from libs.kube.views import Metadata, Node

_LATEST = 1e11
"""A time that can still be shown; people may write any number."""
_OPERATIONS = {LeaseOwner.UPGRADE: "upgrade", LeaseOwner.MIG: "MIG operation"}


def describe(held: HeldNode, *, now: float | None = None) -> str:
    """Return who has a node, since when, why, and how that ends."""
    ends = "withdrawn by" if held.waits else "ends with"
    return f"{holder_text(held, now=now)}; {ends} `sluice lease return {held.node}`"


def holder_text(held: HeldNode, *, now: float | None = None) -> str:
    """Return who has a node, why, and since when: before `now`, or else as a time."""
    who, reason = held.who or "a person", f": {held.reason}" if held.reason else ""
    is_known = 0 < held.since < _LATEST
    if is_known and now is not None:
        ago = f"{duration(now - held.since)} ago"
        if held.waits:
            return f"{who} asked for the node {ago}, once the operation on it ends{reason}"
        return f"{who} took the node {ago}{reason}"
    since = f"since {clock_time(held.since)} UTC" if is_known else "for a while"
    if held.waits:
        return f"{who} waits {since} for the operation on the node to end{reason}"
    return f"{who} has the node {since}{reason}"


def take(
    metadata: Metadata, *, who: str, reason: str, at: float, frozen: Collection[str] = ()
) -> Edit:
    """Take the lease of a node at rest; of one in flight, claim it.

    `frozen` names the pools in which no operation ends.
    """
    name = metadata.name
    lease = lease_of(metadata)
    if UNREADABLE in (lease, lease_of(metadata, LEASE_CLAIM_ANNOTATION)):
        raise Failure(
            ExitCode.REFUSED,
            f"the lease of {name} cannot be read, so nobody can take it; end it first with"
            f" `sluice lease return {name}`",
        )
    held, record = held_of(metadata), record_of(metadata)
    pool = record.pool if record is not None else ""
    if held is not None and held.who != plain(who):
        raise Failure(ExitCode.REFUSED, f"{name} is not free: {describe(held)}")
    if held is not None:
        stopped = f"; {_frozen(pool)}" if held.waits and pool in frozen else ""
        return Edit(done=f"unchanged: {describe(held)}{stopped}")
    taken = NodeLease(
        node_uid=metadata.uid,
        owner=LeaseOwner.HUMAN,
        token=record.token if record is not None else 0,
        since=at,
        who=plain(who),
        reason=plain(reason),
    )
    if lease is None:
        return Edit(
            done=f"{name} is yours: nothing starts on it, and it counts as unavailable, until"
            f" `sluice lease return {name}`",
            patch=_annotations({LEASE_ANNOTATION: encode(taken).decode()}),
        )
    when = f"but {_frozen(pool)}" if pool in frozen else f"and `sluice why {name}` shows when"
    return Edit(
        done=f"{name} is in an operation, which ends first: the node is yours from then on, {when}",
        patch=_annotations({LEASE_CLAIM_ANNOTATION: encode(taken).decode()}),
    )


def _frozen(pool: str) -> str:
    """Return what ends the operations of a pool in which no node moves."""
    return f"{pool} is frozen: the operation ends only after `{resume_command(pool)}`"


def is_taken(metadata: Metadata) -> bool:
    """Whether a person has the node already, and does not wait for it."""
    held = held_of(metadata)
    return held is not None and not held.waits


def give_back(metadata: Metadata, *, who: str) -> Edit:
    """End the lease of a person on a node, or the claim of one."""
    name, held = metadata.name, held_of(metadata)
    lease = lease_of(metadata)
    ended = [
        key for key in (LEASE_ANNOTATION, LEASE_CLAIM_ANNOTATION) if _is_persons(metadata, key)
    ]
    if not ended:
        if isinstance(lease, NodeLease):
            raise Failure(
                ExitCode.REFUSED,
                f"the lease of {name} belongs to an operation ({lease.owner.value}), which ends it;"
                f" `sluice why {name}` shows what it waits for",
            )
        return Edit(done=f"no person has {name}; unchanged")
    risk = f"{name} is drained and upgraded if its pool wants another driver"
    if held is None:
        risk = f"the lease of {name} cannot be read, so nobody knows who has the node; {risk}"
    elif held.who != plain(who):
        risk = f"{describe(held)}, and may be at work on it; {risk}"
    elif held.waits:
        risk = ""
    done = f"{name} is returned: operations start on it again"
    if held is not None and isinstance(lease, NodeLease) and is_in_flight(metadata):
        claim = "your claim" if held.who == plain(who) else f"the claim of {held.who or 'a person'}"
        operation = _OPERATIONS[lease.owner]
        done = f"{claim} on {name} is withdrawn; its {operation} goes on"
    return Edit(
        done=done,
        patch=_annotations(dict.fromkeys(ended)),
        risk=risk,
    )


def remaining_cordon(node: Node) -> str:
    """Return how the cordon of a node ends that a person does not have any more."""
    if not node.spec.unschedulable:
        return ""
    if is_in_flight(node.metadata):
        return ", and Sluice ends its cordon" if cordoned_by(node) == SLUICE else ""
    return f"; `kubectl uncordon {node.metadata.name}` ends its cordon"


def _is_persons(metadata: Metadata, key: str) -> bool:
    """Whether a person may end what is there: not the lease of an operation."""
    lease = lease_of(metadata, key)
    if isinstance(lease, NodeLease):
        return key == LEASE_CLAIM_ANNOTATION or lease.owner is LeaseOwner.HUMAN
    return lease is not None


def _annotations(changes: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"annotations": changes}}
