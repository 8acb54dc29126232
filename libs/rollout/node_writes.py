"""Writes to a Node: everything that we own on it, assembled in one place.

Every step that writes goes through `write_step`, so that state, driver label, lease, record and
cordon stay consistent.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from libs.contracts.node import (
    DRIVER_LABEL,
    LEASE_ANNOTATION,
    RECORD_ANNOTATION,
    STATE_LABEL,
    LeaseOwner,
    NodeLease,
    NodeRecord,
    Operation,
    UpgradeState,
)
from libs.rollout import limits
from libs.rollout.decision import (
    Action,
    NodeApplyConfiguration,
    NodeTaint,
    Notice,
    Step,
    WriteNode,
)
from libs.rollout.step_times import time_taken
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView

_KEYS: Final = {
    NodeField.STATE: STATE_LABEL,
    NodeField.DRIVER: DRIVER_LABEL,
    NodeField.LEASE: LEASE_ANNOTATION,
    NodeField.RECORD: RECORD_ANNOTATION,
}

ENGINE_OWNERS: Final = frozenset({LeaseOwner.UPGRADE, LeaseOwner.MIG})
"""The owners of leases that the engine takes and ends."""

NON_DISRUPTIVE: Final = frozenset({Operation.BRING_UP, Operation.VALIDATE})
"""A lease for one of these operations does not make its node unavailable."""

RESTING_STATES: Final = frozenset(
    {UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED, UpgradeState.UPGRADE_REQUIRED}
)
"""States of a node at rest."""


def current_record(node: NodeView) -> NodeRecord | None:
    """Return the record, unless it belongs to an earlier Node of the same name."""
    record = node.record
    return record if isinstance(record, NodeRecord) and record.node_uid == node.uid else None


def current_lease(node: NodeView) -> NodeLease | None:
    """Return the lease, unless it belongs to an earlier Node of the same name."""
    lease = node.lease
    return lease if isinstance(lease, NodeLease) and lease.node_uid == node.uid else None


def upgrade_lease(node: NodeView) -> NodeLease | None:
    """Return the lease if the engine owns it."""
    lease = current_lease(node)
    return lease if lease and lease.owner in ENGINE_OWNERS else None


def updated_record(record: NodeRecord, node: NodeView, now: Instant, **changes: Any) -> NodeRecord:
    """Return the changed record, valid since now, in this boot and under this epoch."""
    fields = {"since": now.at, "boot_id": node.boot_id, "epoch": now.epoch, "node_uid": node.uid}
    return msgspec.structs.replace(record, **{**fields, "deadline_renewed": False, **changes})


def record_in_state(
    state: UpgradeState,
    record: NodeRecord,
    node: NodeView,
    pool: PoolView,
    now: Instant,
    **changes: Any,
) -> NodeRecord:
    """Return the record in a state that begins now, with the deadline of that state."""
    fields = {
        "state": state,
        "deadline": limits.deadline(state, pool, now),
        "frozen_seconds": pool.constraints.frozen_seconds,
    }
    return updated_record(record, node, now, **{**fields, **changes})


def current_driver_pod(node: NodeView) -> DriverPod | None:
    """Return the driver pod of the node, preferably one that is not terminating."""
    admitted = node.gate.admitted_pod_uid if node.gate is not None else ""
    pods = sorted(node.driver_pods, key=lambda pod: (pod.deleting, pod.uid != admitted))
    return pods[0] if pods else None


def unchanged_cordon(node: NodeView) -> bool | None:
    """Return the value to apply so that the cordon stays as it is."""
    return True if node.is_owned(NodeField.CORDON) and node.cordoned else None


def is_only_our_cordon(node: NodeView) -> bool:
    return node.is_owned(NodeField.CORDON) and not node.other_managers(NodeField.CORDON)


def has_adopted_cordon(node: NodeView, record: NodeRecord) -> bool:
    """Whether the cordon is still the one of the adopted upgrade.

    We co-own an adopted cordon. A manager that removes or sets it anew ends our share.
    """
    return record.cordon_adopted and node.is_owned(NodeField.CORDON)


def cordon_at_release(node: NodeView, record: NodeRecord, *, proven: bool) -> bool | None:
    """Return the value that drops our cordon; another owner's stays (docs/states.md#writes).

    A node that had failed stays cordoned until its driver is proven.
    """
    if node.keep_cordoned or (record.unproven and not proven):
        return unchanged_cordon(node)
    if has_adopted_cordon(node, record) and node.cordoned and not node.initially_cordoned:
        return False
    return None


def needs_cordon(record: NodeRecord) -> bool:
    return record.operation not in NON_DISRUPTIVE


def record_for_restart(
    node: NodeView, record: NodeRecord, pool: PoolView, now: Instant, **changes: Any
) -> NodeRecord:
    """Return the record back in the state that starts the driver; what came after is void.

    Loaded modules have to be unloaded again, for which operands are paused again.
    """
    old = current_driver_pod(node)
    loaded = node.loaded is not None and record.operation is not Operation.RESTART
    state = UpgradeState.POD_RESTART_REQUIRED
    if record.operation is Operation.MIG:  # its driver is not replaced
        kept = {**changes, "old_pod_uid": "", "paused": record.paused or loaded}
        return record_in_state(state, record, node, pool, now, **kept)
    fields = {
        "old_pod_uid": old.uid if old is not None else record.old_pod_uid,
        "paused": record.paused or loaded,
        "evidence": None,
    }
    return record_in_state(state, record, node, pool, now, **{**fields, **changes})


def write_step(
    node: NodeView,
    record: NodeRecord | None,
    now: Instant,
    *,
    because: str,
    lease: NodeLease | None,
    cordon: bool | None,
    driver_label: str | None = None,
    initially_cordoned: bool | None = None,
    mig_state: str | None = None,
    taints: tuple[NodeTaint, ...] | None = None,
    cleared: tuple[str, ...] = (),
    lowers_capacity: bool = False,
    notes: Sequence[Notice] = (),
    before: Sequence[Action] = (),
) -> Step:
    """Build the step that writes the Node; the state label is the record's. None keeps a value.

    An empty `driver_label` removes the label, whoever set it.

    `before` are actions that must succeed before the write. `lowers_capacity`: the write may make
    the node unavailable; the record then names the revisions it was decided on.
    """
    previous, pod = current_record(node), current_driver_pod(node)
    if record is not None and previous is not None:
        pulled = None if pod is None else pod.pulled
        record = msgspec.structs.replace(
            record,
            cordon_adopted=has_adopted_cordon(node, record),
            took=time_taken(previous, record, now, pulled=pulled),
        )
    removed = overwritten_keys(node, *_removed_fields(node, record, lease, driver_label))
    if lowers_capacity and record is not None:
        seen = {name: source.revision for name, source in now.visibility.sources.items()}
        record = msgspec.structs.replace(record, seen=seen)
    applied = NodeApplyConfiguration(
        state="" if record is None else record.state,
        driver_label=_kept_label(node, record, lease) if driver_label is None else driver_label,
        lease=lease,
        record=record,
        unschedulable=cordon,
        initially_cordoned=node.initially_cordoned
        if initially_cordoned is None
        else initially_cordoned,
        mig_state=_kept_mig_state(node, record) if mig_state is None else mig_state,
        taints=_kept_taints(node) if taints is None else taints,
        cleared=tuple(dict.fromkeys((*cleared, *removed))),
    )
    write = WriteNode(
        uid=node.uid, revision=node.revision, applied=applied, lowers_capacity=lowers_capacity
    )
    return Step(actions=(*before, write, *notes), because=because)


def _kept_label(node: NodeView, record: NodeRecord | None, lease: NodeLease | None) -> str:
    """Return the driver label if we may apply it; empty for a value of another manager."""
    is_recorded = record is not None and node.driver_label == record.label
    is_ours = lease is not None or is_recorded or node.is_owned(NodeField.DRIVER)
    return node.driver_label if is_ours else ""


def _kept_mig_state(node: NodeView, record: NodeRecord | None) -> str:
    is_ours = record is not None and node.is_owned(NodeField.MIG_STATE)
    return node.mig_state if is_ours else ""


def _kept_taints(node: NodeView) -> tuple[NodeTaint, ...] | None:
    """Return the taints as they are while we own their list: left out, all would be removed.

    The next writer of a taint takes the list over.
    """
    return (node.taints or None) if node.is_owned(NodeField.TAINTS) else None


def taints_without(node: NodeView, key: str) -> tuple[NodeTaint, ...] | None:
    """Return all taints but those with this key; None: the node has none with it."""
    kept = tuple(taint for taint in node.taints if taint.key != key)
    return kept if len(kept) < len(node.taints) else None


def _removed_fields(
    node: NodeView, record: NodeRecord | None, lease: NodeLease | None, driver_label: str | None
) -> Iterator[NodeField]:
    """Yield the fields that a write without them is meant to remove."""
    if record is None and current_record(node) is not None:
        yield NodeField.STATE
        yield NodeField.RECORD
    if lease is None and upgrade_lease(node) is not None:
        yield NodeField.LEASE
    if driver_label == "":
        yield NodeField.DRIVER


def overwritten_keys(node: NodeView, *fields: NodeField) -> tuple[str, ...]:
    """Return our keys that another manager wrote: an apply without them would leave them."""
    return tuple(_KEYS[field] for field in fields if node.other_managers(field))


def mark_required(
    node: NodeView,
    record: NodeRecord,
    pool: PoolView,
    now: Instant,
    because: str,
    *,
    notes: tuple[Notice, ...] = (),
    cleared: tuple[str, ...] = (),
    **changes: Any,
) -> Step:
    """Write `upgrade-required`; the node keeps running as it is until the upgrade begins."""
    fields = {
        "state": UpgradeState.UPGRADE_REQUIRED.value,
        "pool": pool.key,
        "deadline": None,
        "paused": False,
        "restarts": (),
        **changes,
    }
    return write_step(
        node,
        updated_record(record, node, now, **fields),
        now,
        because=because,
        lease=None,
        cordon=unchanged_cordon(node),
        notes=notes,
        cleared=cleared,
    )


def unmark_required(node: NodeView, record: NodeRecord, target: str, now: Instant) -> Step:
    """Write `upgrade-done`: the policy wants what the node runs, and that is proven."""
    done = updated_record(
        record,
        node,
        now,
        state=UpgradeState.UPGRADE_DONE.value,
        operation=None,
        target=target,
        label=node.driver_label,
        label_before="",
        cause="",
        outside=False,
        attempt=0,
        back_off_until=0.0,
        back_off_seconds=0.0,
    )
    return write_step(
        node,
        done,
        now,
        because="the policy wants the running, validated driver again",
        lease=None,
        cordon=unchanged_cordon(node),
    )
