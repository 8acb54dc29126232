"""The contribution of one node to the Rollout of a pool: in flight, ended, unavailable and why.

Derived from the Node's record alone, never from its state label, which people write
(docs/states.md#budget).
"""

from enum import Enum, auto
from typing import Final

import msgspec
from msgspec.structs import replace

from libs.contracts.node import NodeLease, NodeRecord, Operation, UpgradeState
from libs.contracts.rollout import InFlight
from libs.rollout.cordons import NON_DISRUPTIVE
from libs.rollout.node_driver import is_joining, is_occupied, starts_by_hand
from libs.rollout.views.node import ENGINE_OWNERS, NodeField, NodeView

_DONE, _FAILED = UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED
_NEVER_DONE: Final = frozenset({Operation.BRING_UP, Operation.TAKE_OVER})

_BEGINNING: Final = (NodeField.STATE, NodeField.LEASE, NodeField.RECORD)
"""The fields of a first write. Cordon and driver label may be left from an earlier operation."""

_WITHOUT_TARGET: Final = frozenset({Operation.VALIDATE, Operation.REMOVE, Operation.MIG})
"""Operations that move no node to a target."""

UNREPORTED: Final = "no report about its driver since the last boot"
"""Why a node may be unavailable: a boot unloads the driver, and nothing shows a new one."""

UNBEGUN_SECONDS: Final = 60.0
"""How long an entry is kept for a node that does not begin."""


class EntryResult(Enum):
    """How an entry in flight ended."""

    VALIDATED = auto()
    FAILED = auto()
    REMOVED = auto()
    """Counts as no proof and no harm: the node was not changed, or is outside the counts."""


class NodeContribution(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str
    uid: str
    present: bool = True
    """The pool selects the node."""
    counts_for_base: bool = False
    was_managed: bool = False
    """The node has the lease or the record of a rollout of this pool."""
    unavailable: str = ""
    is_unreported: bool = False
    """Counted as unavailable only because its driver is unknown; its own start counts too."""
    entry: InFlight | None = None
    """Its entry in flight, as the Rollout should have it."""
    entry_differs: bool = False
    """The Rollout has another entry."""
    ending: EntryResult | None = None
    leased: bool = False
    write_pending: bool = False
    unconfirmed_until: float | None = None
    """Until then a write of ours that was not answered may still be carried out."""
    ready: bool = True
    is_unoccupied: bool = False
    """Nothing runs on the node that could be taken away: it is brought up without a cordon."""
    started: bool = False
    """Past the first irreversible step, or in an operation without one."""
    by_hand: bool = False
    """Granted, and may begin although `autoUpgrade` is off."""
    joining: bool = False
    """The node had no driver of ours before."""
    counted_targets: tuple[str, ...] = ()
    """Targets for which the node counts as in flight."""
    failed_on: str = ""
    """The target on which it failed after the start."""
    proved_on: str = ""
    """The target that its entry in flight validated."""
    vanished: InFlight | None = None
    """The entry, which counts for its target, of a node that is gone and may have started."""
    is_recovery: bool = False
    """In flight, and it had failed on an earlier target."""
    due: float | None = None
    """When its entry expires."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether a write to the node is on its way, or was not answered."""
        return self.write_pending or self.unconfirmed_until is not None

    @property
    def may_be_available(self) -> bool:
        return self.is_unreported or not self.unavailable

    @property
    def lowers_capacity(self) -> bool:
        """Whether beginning may make an available node unavailable."""
        validates = self.entry is not None and self.entry.validates
        return self.may_be_available and not (self.is_unoccupied or validates)


def contribution_of(
    node: NodeView, entry: InFlight | None, pool: str, now: float
) -> NodeContribution:
    """Return the contribution of the node to this pool; `entry` is its entry in the Rollout."""
    record = node.current_record
    is_of_pool = record is None or record.pool == pool or not record.pool
    present = node.pool == pool
    lease = node.upgrade_lease if is_of_pool and node.lease is not None else None
    failed_on = ""
    if record is not None and record.started and not record.outside and record.pool == pool:
        failed_on = record.target if record.state == _FAILED and not record.unbegun else ""
    unavailable = unavailable_reason(node, record) if present or lease is not None else ""
    base = NodeContribution(
        name=node.name,
        uid=node.uid,
        present=present,
        counts_for_base=present and counts_for_base(node, record),
        was_managed=lease is not None or (record is not None and record.pool == pool),
        unavailable=unavailable,
        is_unreported=unavailable == UNREPORTED,
        write_pending=node.write_pending,
        unconfirmed_until=_unconfirmed_until(node, now),
        ready=node.ready,
        failed_on=failed_on,
    )
    if lease is not None:
        return _leased(base, node, record, lease, entry)
    if entry is None:
        return base
    if is_of_pool:
        return _unleased(base, node, record, entry, now)
    # The record belongs to another pool: only its token can be compared with this entry.
    arrives = present and record is not None and record.token < entry.token
    return _unbegun(base, node, record, entry, now) if arrives else _removed(base)


def _unconfirmed_until(node: NodeView, now: float) -> float | None:
    written_at = node.unconfirmed_write_at
    until = None if written_at is None else written_at + UNBEGUN_SECONDS
    return until if until is not None and now < until else None


def _leased(
    base: NodeContribution,
    node: NodeView,
    record: NodeRecord | None,
    lease: NodeLease,
    entry: InFlight | None,
) -> NodeContribution:
    """Return the contribution of a leased node: target and token of its record apply."""
    if record is None:
        if entry is None:
            return base
        return replace(
            base,
            entry=entry,
            leased=True,
            started=True,
            counted_targets=_targets(entry),
            failed_on="" if entry.outside else entry.target,
        )
    divides = record.operation is Operation.MIG
    current = InFlight(
        node=node.name,
        token=lease.token,
        target="" if divides else record.target,
        since=lease.since,
        outside=record.outside and not divides,
        validates=record.operation is Operation.VALIDATE,
    )
    started = record.started or record.operation in _WITHOUT_TARGET
    if entry is None:
        stored = current
    elif entry.token != lease.token:
        stored = replace(current, since=entry.since)
    else:
        target = current.target if started else entry.target
        stored = replace(current, target=target, since=entry.since)
    return replace(
        base,
        entry=stored,
        entry_differs=stored != entry,
        leased=True,
        started=started,
        joining=is_joining(node, record),
        counted_targets=tuple({*_targets(stored), *_targets(current)}),
        is_recovery=stored.outside and not stored.validates,
    )


def _unleased(
    base: NodeContribution, node: NodeView, record: NodeRecord | None, entry: InFlight, now: float
) -> NodeContribution:
    """Return the contribution of a node without a lease: its entry is not begun, or ended."""
    if record is None:
        if not entry.target and not node.driver_label:
            return _removed(base)
        # Only our own values prove a first write: others may write these fields too.
        was_begun = any(node.has_our_value(field) for field in _BEGINNING)
        agents = node.components.values()
        if was_begun or any(agent.highest_order.token >= entry.token for agent in agents):
            return _ended(base, EntryResult.FAILED, entry, entry.target)
        return _unbegun(base, node, None, entry, now)
    if record.token < entry.token:
        return _unbegun(base, node, record, entry, now)
    target = record.target if entry.target else ""
    proof = record.evidence
    if proof is not None and proof.passed and proof.token >= entry.token:
        return _ended(base, EntryResult.VALIDATED, entry, target)
    if record.started and not record.unbegun:
        return _ended(base, EntryResult.FAILED, entry, target)
    return _removed(base)


def _unbegun(
    base: NodeContribution, node: NodeView, record: NodeRecord | None, entry: InFlight, now: float
) -> NodeContribution:
    unconfirmed_until = base.unconfirmed_until
    due = entry.since + UNBEGUN_SECONDS if unconfirmed_until is None else unconfirmed_until
    if now >= due and not node.write_pending:
        return _removed(base)
    joining = is_joining(node, record)
    return replace(
        base,
        entry=entry,
        is_unoccupied=joining and is_occupied(node) is False,
        by_hand=entry.validates or (bool(entry.target) and starts_by_hand(node, record)),
        joining=joining,
        counted_targets=_targets(entry),
        is_recovery=entry.outside and not entry.validates,
        due=due,
    )


def _ended(
    base: NodeContribution, ending: EntryResult, entry: InFlight, target: str
) -> NodeContribution:
    """Return the contribution of an ended entry; one outside the counts is only removed."""
    if entry.outside or not target:
        return _removed(base)
    return replace(
        base,
        ending=ending,
        failed_on=target if ending is EntryResult.FAILED else base.failed_on,
        proved_on=target if ending is EntryResult.VALIDATED else "",
    )


def _removed(base: NodeContribution) -> NodeContribution:
    return replace(base, ending=EntryResult.REMOVED)


def _targets(entry: InFlight) -> tuple[str, ...]:
    return () if entry.outside or not entry.target else (entry.target,)


def unavailable_reason(node: NodeView, record: NodeRecord | None) -> str:
    """Return why the node counts as unavailable; empty: it is available."""
    if node.claim is not None and node.lease is not None:
        return "claimed by a person"
    if node.lease is not None and _lowered_by_lease(node, record):
        owner = node.lease.owner if isinstance(node.lease, NodeLease) else None
        return "in an upgrade" if owner in ENGINE_OWNERS else "leased"
    if node.state == _FAILED or (record is not None and record.state == _FAILED):
        return "failed"
    if not node.ready:
        return "not ready"
    if node.cordoned:
        return "cordoned"
    if node.loaded is not None or not _should_have_driver(node, record):
        return ""
    return "without a driver" if node.modules_reported else UNREPORTED


def counts_for_base(node: NodeView, record: NodeRecord | None) -> bool:
    """Whether the node was done before: a node that joins counts only from then on."""
    if node.state == _DONE:
        return True
    if record is None:
        return bool(node.driver_label)
    return bool(record.evidence or node.driver_label) and record.operation not in _NEVER_DONE


def _lowered_by_lease(node: NodeView, record: NodeRecord | None) -> bool:
    lease = node.lease
    if not isinstance(lease, NodeLease):
        return True
    if lease.node_uid != node.uid:
        return False
    return (
        lease.owner not in ENGINE_OWNERS or record is None or record.operation not in NON_DISRUPTIVE
    )


def _should_have_driver(node: NodeView, record: NodeRecord | None) -> bool:
    """Whether the node had a driver or should run one; not during its first bring-up."""
    bring_up = record is not None and record.operation is Operation.BRING_UP
    if bring_up and node.lease is not None:
        return False
    return bool(node.driver_label) or (record is not None and record.evidence is not None)
