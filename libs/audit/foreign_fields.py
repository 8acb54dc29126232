"""I4: a field that others wrote last is changed by us only in listed cases, the cordon included.

A released node is cordoned exactly where others want it cordoned. Their last write expresses what
they want, as far as a revision shows it. Cordoning a node that we have already cordoned writes
nothing; the label `sluice.dev/keep-cordoned` expresses it instead.

The listed cases for all other fields are the takeovers: requests to us are cleared; a state of
`upgrade-required` is a request too; an edit of our state or driver label is reverted once per
attempt; a state that the GPU Operator left is adopted. A node without its record is not ours until
a person asks us to adopt or forget it.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from libs.audit.case import AuditCase, AuditFinding, write_violation
from libs.audit.nodes import NodeHistory
from libs.audit.startup_taints import is_of_taints
from libs.audit.timeline import OURS, NodeChange
from libs.contracts.journal import Verb
from libs.contracts.node import (
    MANAGER,
    REQUESTED_ANNOTATION,
    SAFE_LOAD_ANNOTATION,
    NodeRequest,
    UpgradeState,
)
from libs.contracts.paths import (
    CORDON,
    DRIVER,
    INITIALLY_CORDONED,
    LEASE,
    RECORD,
    REQUEST,
    STATE,
    annotation_path,
    metadata_key,
)

_IN_PROGRESS: Final = frozenset(UpgradeState) - {
    UpgradeState.UNKNOWN,
    UpgradeState.UPGRADE_REQUIRED,
    UpgradeState.CORDON_REQUIRED,
    UpgradeState.UPGRADE_DONE,
}
"""States in which the GPU Operator has cordoned a node."""

_REQUESTS: Final = frozenset(
    {REQUEST, annotation_path(REQUESTED_ANNOTATION), annotation_path(SAFE_LOAD_ANNOTATION)}
)
_EXEMPT: Final = frozenset({CORDON, LEASE, RECORD, INITIALLY_CORDONED})
"""Fields that other checks judge, as they do the taints, or that are shared with the GPU Operator
by design."""

_OWNERSHIP_PATHS: Final = frozenset({STATE, DRIVER, LEASE, RECORD})
_TAKEOVER_REQUESTS: Final = frozenset({NodeRequest.ADOPT.value, NodeRequest.FORGET.value})

_INCUMBENTS: Final = frozenset({"gpu-operator", "k8s-driver-manager", "nfd-master", "nfd-worker"})
"""Managers of labels that our services take over when a cluster moves to Sluice."""
_INHERITED_PREFIXES: Final = ("nvidia.com/", "feature.node.kubernetes.io/")


class _DesiredCordon(msgspec.Struct):
    """Whether others want a node cordoned."""

    cordoned: bool | None
    """None where it is unknown."""
    ours: bool
    """Whether the scheduler ever wrote to the node."""
    unproven: bool = False
    """Whether the node failed since it last worked, or was adopted or forgotten at a person's
    request under our cordon. An attempt without a result leaves this as it is."""

    @classmethod
    def at_start(cls, history: NodeHistory) -> "_DesiredCordon":
        first = history.at(-1)
        created = history.is_complete and not first.exists
        cordoned = False if created else history.cordoned_by_others
        return cls(cordoned=cordoned, ours=history.was_ours, unproven=first.failed)

    def observe_before_check(self, change: NodeChange) -> None:
        """Account for our first write to the node."""
        before = change.before
        if change.by_scheduler and not self.ours:
            self.ours = True
            if before.state in _IN_PROGRESS and before.record is None:
                # Without the annotation `initially-cordoned`, the cordon was the GPU Operator's
                # and ends with the upgrade that we took over.
                self.cordoned = before.initially_cordoned and before.cordoned

    def observe_after_check(self, change: NodeChange) -> None:
        """Account for writes of others, and for the result of an attempt of ours."""
        before, after = change.before, change.after
        if change.by_scheduler:
            if after.failed or change.new_state == UpgradeState.UPGRADE_DONE:
                self.unproven = after.failed
            if before.request and after.lease is None and after.cordoned:
                self.unproven = self.unproven or self.cordoned is False
            return
        if CORDON in change.revision.changed:
            self.cordoned = after.cordoned
        if before.record and after.record is None and before.record.cordon_adopted:
            self.cordoned = None  # only the lost record named the owner of the cordon


def cordons(case: AuditCase) -> Iterator[AuditFinding]:
    """Check each write of ours that changes a cordon, or ends the lease that needed it."""
    for change, desired in case.timeline.changes_with(_DesiredCordon.at_start):
        desired.observe_before_check(change)
        if change.by_scheduler and (problem := _cordon_problem(change, desired)):
            yield write_violation("I4", change, f"{change.node.name} {problem}")
        desired.observe_after_check(change)


def _cordon_problem(change: NodeChange, desired: _DesiredCordon) -> str:
    before, after = change.before, change.after
    if not after.exists:
        return ""
    owner = change.previous_writers.get(CORDON) or MANAGER
    owner = "another manager" if owner == MANAGER else owner
    if change.uncordoned and before.keeps_cordon:
        return "was uncordoned despite its label sluice.dev/keep-cordoned"
    if change.uncordoned and desired.cordoned:
        return f"was uncordoned, although {owner} had cordoned it"
    if after.cordoned and not before.cordoned and not (before.upgrade or after.upgrade):
        return f"was cordoned without a lease, after {owner} had uncordoned it"
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


class _NodeOwnership(msgspec.Struct):
    """The part of a node's history that decides which of its fields we may write."""

    known: bool
    """Whether the node ever was ours."""
    own_paths: set[str]
    """Paths that we wrote last; of a node that was ours at the start, all that had a value."""
    record_lost: bool = False
    malformed_record: bool = False
    reverts: dict[int, list[int]] = {}
    """By token the positions at which we reverted an edit."""

    @classmethod
    def at_start(cls, history: NodeHistory) -> "_NodeOwnership":
        ours, first = history.was_ours, history.at(-1)
        values = {
            STATE: first.state,
            DRIVER: first.driver,
            LEASE: first.lease,
            RECORD: first.record,
        }
        return cls(known=ours, own_paths={path for path in values if ours and values[path]})

    def observe(self, change: NodeChange) -> None:
        for path in _OWNERSHIP_PATHS & change.revision.changed.keys():
            value = change.revision.changed[path][1]
            if change.by_scheduler and value:
                self.own_paths.add(path)
            else:
                self.own_paths.discard(path)
            if path == RECORD:
                self.malformed_record = bool(value) and change.after.record is None
        lost = self.record_lost or change.record_lost
        self.record_lost = lost and self._shows_ownership(change)
        self.known = self.known or change.by_scheduler

    def _shows_ownership(self, change: NodeChange) -> bool:
        """Report whether the node still shows that it was ours; otherwise it counts as new."""
        if change.after.upgrade is not None or self.own_paths - {DRIVER}:
            return True
        return DRIVER in self.own_paths and (self.malformed_record or bool(change.after.state))


def foreign_fields(case: AuditCase) -> Iterator[AuditFinding]:
    """Check each path of each write of ours."""
    for change, node in case.timeline.changes_with(_NodeOwnership.at_start):
        problems: Iterator[str] = iter(())
        if change.by_scheduler:
            problems = _own_write(change, node)
        elif change.revision.manager.startswith(OURS):
            problems = _service_write(change)
        for problem in problems:
            yield write_violation("I4", change, f"{change.node.name}: {problem}")
        node.observe(change)


def _own_write(change: NodeChange, node: _NodeOwnership) -> Iterator[str]:
    verb = change.revision.verb
    if change.revision.code == 201:
        yield "our apply created the Node: an apply must name the uid of an existing Node"
    elif verb != Verb.APPLY:
        yield f"we wrote it by {verb} instead of by an apply, which alone tracks owners"
    if change.before.request in _TAKEOVER_REQUESTS:
        node.record_lost = False
        node.reverts.clear()  # the record that counted them is replaced
    elif node.record_lost:
        yield "we wrote to it although its record is lost and there is no adopt or forget request"
    for path, last in change.previous_writers.items():
        if last in (None, MANAGER) or path in _EXEMPT or is_of_taints(path):
            continue
        if problem := _field_problem(change, node, path):
            yield f"{path}, last written by {last}, {problem}"


def _field_problem(change: NodeChange, node: _NodeOwnership, path: str) -> str:
    before, (old, new) = change.before, change.revision.changed[path]
    if path in _REQUESTS:
        return f"was set by us to {new!r}" if new else ""
    if path == STATE:
        requested = (
            before.state == UpgradeState.UPGRADE_REQUIRED or before.request in _TAKEOVER_REQUESTS
        )
        if requested or not node.known or before.record is None:
            return ""
        # An edit that its author has reverted needs no revert of ours.
        return _revert_problem(change, node) if before.state != before.record.state else ""
    if path == DRIVER:
        in_flight = before.upgrade and before.record and before.record.started
        return _revert_problem(change, node) if in_flight else ""
    return f"was changed by us from {old!r} to {new!r}"


def _revert_problem(change: NodeChange, node: _NodeOwnership) -> str:
    token = change.before.record.token if change.before.record else 0
    positions = node.reverts.setdefault(token, [])
    if change.position not in positions:  # one write may revert several edits
        positions.append(change.position)
    return "was reverted by us for the second time in one attempt" if len(positions) == 2 else ""


def _service_write(change: NodeChange) -> Iterator[str]:
    """Check a write of one of our other services."""
    manager = change.revision.manager
    for path, last in change.previous_writers.items():
        entry = metadata_key(path)
        inherited = last in _INCUMBENTS and entry and entry[1].startswith(_INHERITED_PREFIXES)
        if last not in (None, manager) and not inherited:
            yield f"{manager} changed {path}, last written by {last}"
