"""I4, all other fields: a field that others wrote last is changed by us only in listed cases.

These are the takeovers: requests to us are cleared; a state of `upgrade-required` is a request too;
an edit of our state or driver label is reverted once per attempt; a state that the GPU Operator
left is adopted. A node without its record is not ours until a person asks us to adopt or forget it.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from libs.audit.case import AuditCase, AuditFinding, write_violation
from libs.audit.nodes import (
    DRIVER,
    INITIALLY_CORDONED,
    LEASE,
    RECORD,
    REQUEST,
    STATE,
    UNSCHEDULABLE,
    NodeHistory,
)
from libs.audit.timeline import OURS, NodeChange
from libs.contracts.journal import Verb
from libs.contracts.node import (
    MANAGER,
    REQUESTED_ANNOTATION,
    SAFE_LOAD_ANNOTATION,
    NodeRequest,
    UpgradeState,
)
from libs.contracts.paths import annotation_path, metadata_key

_REQUESTS: Final = frozenset(
    {REQUEST, annotation_path(REQUESTED_ANNOTATION), annotation_path(SAFE_LOAD_ANNOTATION)}
)
_EXEMPT: Final = frozenset({UNSCHEDULABLE, LEASE, RECORD, INITIALLY_CORDONED})
"""Fields that other checks judge, or that are shared with the GPU Operator by design."""

_OWNERSHIP_PATHS: Final = frozenset({STATE, DRIVER, LEASE, RECORD})
_TAKEOVER_REQUESTS: Final = frozenset({NodeRequest.ADOPT.value, NodeRequest.FORGET.value})

INCUMBENTS: Final = frozenset({"gpu-operator", "k8s-driver-manager", "nfd-master", "nfd-worker"})
"""Managers whose labels our services take over when a cluster moves to Sluice."""
_INHERITED_PREFIXES: Final = ("nvidia.com/", "feature.node.kubernetes.io/")


class _NodeOwnership(msgspec.Struct):
    """The part of a node's past that decides which of its fields we may write."""

    known: bool = False
    """Whether the node ever was ours."""
    record_lost: bool = False
    own_paths: set[str] = set()
    """Paths that we wrote last; of a node that was ours at the start, all of them."""
    malformed_record: bool = False
    reverts: dict[tuple[int, bool], list[int]] = {}
    """Positions at which we reverted an edit, by token and whether the node was in flight."""

    def observe(self, change: NodeChange) -> None:
        for path in _OWNERSHIP_PATHS & change.revision.changed.keys():
            value = change.revision.changed[path][1]
            if change.ours and value:
                self.own_paths.add(path)
            else:
                self.own_paths.discard(path)
            if path == RECORD:
                self.malformed_record = bool(value) and change.after.record is None
        self.record_lost = (self.record_lost or change.record_lost) and self._shows_ownership(
            change
        )

    def _shows_ownership(self, change: NodeChange) -> bool:
        """Report whether the node still shows that it was ours; otherwise it is like a new one."""
        if change.after.upgrade is not None or self.own_paths - {DRIVER}:
            return True
        return DRIVER in self.own_paths and (self.malformed_record or bool(change.after.state))


def foreign_fields(case: AuditCase) -> Iterator[AuditFinding]:
    """Check each path of each write of ours."""
    nodes: dict[str, _NodeOwnership] = {}
    for change in case.timeline.changes:
        uid = change.node.uid
        node = nodes.get(uid)
        if node is None:
            ours = change.node.was_ours
            node = _NodeOwnership(known=ours, own_paths=set(_OWNERSHIP_PATHS) if ours else set())
            nodes[uid] = node
        for message in _messages(change, node):
            yield write_violation("I4", change, f"{change.node.name}: {message}")
        node.observe(change)


def _messages(change: NodeChange, node: _NodeOwnership) -> Iterator[str]:
    manager = change.revision.manager
    if change.ours:
        yield from _form(change)
        yield from _lost_record(change, node)
        for path, last in change.previous_writers.items():
            if last is None or last == MANAGER or path in _EXEMPT:
                continue
            rule = _RULES.get(path, _foreign_field)
            if problem := rule(change, node, path):
                yield f"{path}, last written by {last}, {problem}"
        node.known = True
    elif manager.startswith(OURS):
        for path, last in change.previous_writers.items():
            if last is not None and last != manager and not _is_inherited(path, last):
                yield f"{manager} changed {path}, last written by {last}"


def _form(change: NodeChange) -> Iterator[str]:
    revision = change.revision
    if revision.code == 201:
        yield "our apply created the Node: an apply must name the uid of an existing Node"
    elif revision.verb != Verb.APPLY:
        yield f"we wrote it by {revision.verb} instead of by an apply, which alone tracks owners"


def _lost_record(change: NodeChange, node: _NodeOwnership) -> Iterator[str]:
    if change.before.request in _TAKEOVER_REQUESTS:
        node.record_lost = False
    elif node.record_lost:
        yield "we wrote to it although its record is lost and there is no adopt or forget request"


def _foreign_field(change: NodeChange, _: _NodeOwnership, path: str) -> str:
    before, after = change.revision.changed[path]
    return f"was changed by us from {before!r} to {after!r}"


def _request(change: NodeChange, _: _NodeOwnership, path: str) -> str:
    after = change.revision.changed[path][1]
    return f"was set by us to {after!r}" if after else ""


def _state(change: NodeChange, node: _NodeOwnership, _: str) -> str:
    before = change.before
    requested = (
        before.state == UpgradeState.UPGRADE_REQUIRED or before.request in _TAKEOVER_REQUESTS
    )
    if requested or not node.known or before.record is None:
        return ""
    # An edit that its author has reverted needs no revert of ours.
    return _revert(change, node) if before.state != before.record.state else ""


def _driver(change: NodeChange, node: _NodeOwnership, _: str) -> str:
    before = change.before
    in_flight = before.upgrade is not None and before.record is not None and before.record.started
    return _revert(change, node) if in_flight else ""


def _revert(change: NodeChange, node: _NodeOwnership) -> str:
    token = change.before.record.token if change.before.record else 0
    positions = node.reverts.setdefault((token, change.before.upgrade is not None), [])
    if change.position not in positions:  # one write may revert several edits
        positions.append(change.position)
    return "was reverted by us for the second time in one attempt" if len(positions) == 2 else ""


_RULES: Final[dict[str, Callable[[NodeChange, _NodeOwnership, str], str]]] = {
    STATE: _state,
    DRIVER: _driver,
    **dict.fromkeys(_REQUESTS, _request),
}


def _is_inherited(path: str, last: str) -> bool:
    entry = metadata_key(path)
    return entry is not None and last in INCUMBENTS and entry[1].startswith(_INHERITED_PREFIXES)


IN_PROGRESS: Final = frozenset(UpgradeState) - {
    UpgradeState.UNKNOWN,
    UpgradeState.UPGRADE_REQUIRED,
    UpgradeState.CORDON_REQUIRED,
    UpgradeState.UPGRADE_DONE,
}
"""States in which the GPU Operator has cordoned a node."""


class DesiredCordon(msgspec.Struct):
    """Whether others want a node cordoned."""

    cordoned: bool | None
    """None where it is unknown."""
    ours: bool
    """Whether we ever wrote to the node."""
    unproven: bool = False
    """Whether the node failed since it last worked, or was adopted or forgotten at a person's
    request under our cordon. An attempt without a result leaves this as it is."""

    @classmethod
    def at_start(cls, history: NodeHistory) -> "DesiredCordon":
        cordoned = history.cordoned_by_others
        if history.is_complete and not history.at(-1).exists:
            cordoned = False  # the journal shows its creation
        return cls(cordoned=cordoned, ours=history.was_ours, unproven=history.at(-1).failed)

    def observe_before_check(self, change: NodeChange) -> None:
        """Account for our first write to the node."""
        if not change.ours or self.ours:
            return
        self.ours = True
        before = change.before
        if before.state in IN_PROGRESS and before.record is None:
            # Unless it says `initially cordoned`, the cordon was the GPU Operator's and ends with
            # the upgrade that we took over.
            self.cordoned = before.initially_cordoned and before.cordoned

    def observe_after_check(self, change: NodeChange) -> None:
        """Account for writes of others, and for the result of an attempt of ours."""
        if not change.ours and UNSCHEDULABLE in change.revision.changed:
            self.cordoned = change.after.cordoned
        lost = change.before.record if change.after.record is None else None
        if not change.ours and lost is not None and lost.cordon_adopted:
            self.cordoned = None  # only the lost record named the owner of the cordon
        if change.ours and (change.after.failed or change.new_state == UpgradeState.UPGRADE_DONE):
            self.unproven = change.after.failed
        if change.ours and change.before.request and change.after.lease is None:
            self.unproven = self.unproven or (change.after.cordoned and self.cordoned is False)


def cordons(case: AuditCase) -> Iterator[AuditFinding]:
    """Check each write of ours that changes a cordon, or ends the lease that needed it."""
    desired_cordons: dict[str, DesiredCordon] = {}
    for change in case.timeline.changes:
        desired = desired_cordons.setdefault(change.node.uid, DesiredCordon.at_start(change.node))
        desired.observe_before_check(change)
        if change.ours and (message := _message(change, desired)):
            yield write_violation("I4", change, f"{change.node.name} {message}")
        desired.observe_after_check(change)


def _message(change: NodeChange, desired: DesiredCordon) -> str:
    before, after = change.before, change.after
    if not after.exists:
        return ""
    uncordoned = before.cordoned and not after.cordoned
    if uncordoned and before.keeps_cordon:
        return "was uncordoned despite its label sluice.dev/keep-cordoned"
    if uncordoned and desired.cordoned:
        return f"was uncordoned, although {_owner(change)} had cordoned it"
    if after.cordoned and not before.cordoned and not (before.upgrade or after.upgrade):
        return f"was cordoned without a lease, after {_owner(change)} had uncordoned it"
    # After an adopt or forget request, the person who asked decides about the cordon.
    released = (
        change.lease_ended and not after.failed and after.lease is None and not before.request
    )
    kept = before.keeps_cordon or (
        desired.unproven and after.state == UpgradeState.UPGRADE_REQUIRED
    )
    if released and after.cordoned and desired.cordoned is False and not kept:
        return "was released with our cordon left on it"
    return ""


def _owner(change: NodeChange) -> str:
    owner = change.previous_writers.get(UNSCHEDULABLE)
    return owner if owner and owner != MANAGER else "another manager"
