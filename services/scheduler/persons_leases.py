"""Leases of people: which node was taken, claimed or returned, by whom, and why. Pure."""

from typing import Final, TypeAlias

from libs.contracts.events import EditEvent
from libs.contracts.node import LEASE_ANNOTATION, LEASE_CLAIM_ANNOTATION, NodeLease
from libs.contracts.words import excerpt, format_duration
from libs.rollout.persons_lease import has_persons_lease, person
from libs.rollout.views.node import NodeField, NodeView

_MAX_REASON: Final = 200
"""Characters of a reason that are repeated."""
_Held: TypeAlias = tuple[str, NodeLease]
"""The annotation, and the lease or claim of a person in it."""


class PersonsLeases:
    """The leases and claims of all nodes, as last seen by one leader."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._held: dict[str, _Held] = {}

    def forget(self, name: str) -> None:
        self._seen.discard(name)
        self._held.pop(name, None)

    def change_of(self, node: NodeView, *, now: float) -> EditEvent | None:
        """Return what people changed since the node was last seen; None: nothing."""
        is_known = node.name in self._seen
        self._seen.add(node.name)
        before, after = self._held.pop(node.name, None), _held(node)
        if after is not None:
            self._held[node.name] = after
        if not is_known or before == after:
            return None
        managers = node.other_managers(NodeField.LEASE)
        key, _ = after or before or ("", None)
        return EditEvent(
            field=key,
            manager=managers[-1] if managers and after is not None else "",
            before="" if before is None else person(before[1]),
            after="" if after is None else person(after[1]),
            done=_ended(before, now) if after is None else _taken(before, after),
        )


def _held(node: NodeView) -> _Held | None:
    lease = node.current_lease
    if lease is not None and has_persons_lease(node):
        return LEASE_ANNOTATION, lease
    return (LEASE_CLAIM_ANNOTATION, node.claim) if isinstance(node.claim, NodeLease) else None


def _taken(before: _Held | None, after: _Held) -> str:
    key, lease = after
    if key == LEASE_CLAIM_ANNOTATION:
        return f"claimed by {person(lease)} for when the operation on it has ended{_why(lease)}"
    waited = before is not None and person(before[1]) == person(lease)
    return f"leased by {person(lease)}{', who waited for it' if waited else ''}{_why(lease)}"


def _ended(before: _Held | None, now: float) -> str:
    if before is None:
        return ""
    key, lease = before
    if key == LEASE_CLAIM_ANNOTATION:
        return f"the claim of {person(lease)} was withdrawn{_why(lease)}"
    # People may write any number.
    lasted = f" for {format_duration(now - lease.since)}" if 0 < lease.since <= now else ""
    return f"returned; {person(lease)} had it{lasted}{_why(lease)}"


def _why(lease: NodeLease) -> str:
    reason = excerpt(lease.reason, _MAX_REASON)
    return f": {reason}" if reason else ""
