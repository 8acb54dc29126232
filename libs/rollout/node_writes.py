"""Writes to a Node: everything that we own on it, assembled in one place.

Every step that writes goes through `write_step`, so that state, driver label, lease, record and
cordon stay consistent.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from libs.contracts.node import (
    DRIVER_LABEL,
    LEASE_ANNOTATION,
    RECORD_ANNOTATION,
    STATE_LABEL,
    NodeLease,
    NodeRecord,
    Operation,
    UpgradeState,
)
from libs.rollout import limits
from libs.rollout.cordons import has_adopted_cordon, unchanged_cordon
from libs.rollout.decision import (
    Action,
    NodeApplyConfiguration,
    NodeTaint,
    Notice,
    Step,
    WriteNode,
)
from libs.rollout.node_case import NodeCase
from libs.rollout.step_times import time_taken
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeField, NodeView

_KEYS: Final = {
    NodeField.STATE: STATE_LABEL,
    NodeField.DRIVER: DRIVER_LABEL,
    NodeField.LEASE: LEASE_ANNOTATION,
    NodeField.RECORD: RECORD_ANNOTATION,
}

RESTING_STATES: Final = frozenset(
    {UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED, UpgradeState.UPGRADE_REQUIRED}
)
"""States of a node at rest."""


def updated_record(case: NodeCase, record: NodeRecord, **changes: Any) -> NodeRecord:
    """Return the changed record, valid since now, in this boot and under this epoch."""
    fields = {
        "since": case.now.at,
        "boot_id": case.node.boot_id,
        "epoch": case.now.epoch,
        "node_uid": case.node.uid,
    }
    return replace(record, **{**fields, "deadline_renewed": False, **changes})


def record_in_state(
    case: NodeCase, state: UpgradeState, record: NodeRecord, **changes: Any
) -> NodeRecord:
    """Return the record in a state that begins now, with the deadline of that state."""
    fields = {
        "state": state,
        "deadline": limits.deadline(state, case.pool, case.now),
        "frozen_seconds": case.pool.constraints.frozen_seconds,
    }
    return updated_record(case, record, **{**fields, **changes})


def current_driver_pod(node: NodeView) -> DriverPod | None:
    """Return the driver pod of the node, preferably one that is not terminating."""
    admitted = node.gate.admitted_pod_uid if node.gate is not None else ""
    pods = sorted(node.driver_pods, key=lambda pod: (pod.deleting, pod.uid != admitted))
    return pods[0] if pods else None


def record_for_restart(case: NodeCase, record: NodeRecord, **changes: Any) -> NodeRecord:
    """Return the record back in the state that starts the driver; what came after is void.

    Loaded modules have to be unloaded again, for which operands are paused again.
    """
    old = current_driver_pod(case.node)
    loaded = case.node.loaded is not None and record.operation is not Operation.RESTART
    state = UpgradeState.POD_RESTART_REQUIRED
    if record.operation is Operation.MIG:  # its driver is not replaced
        kept = {**changes, "old_pod_uid": "", "paused": record.paused or loaded}
        return record_in_state(case, state, record, **kept)
    fields = {
        "old_pod_uid": old.uid if old is not None else record.old_pod_uid,
        "paused": record.paused or loaded,
        "evidence": None,
    }
    return record_in_state(case, state, record, **{**fields, **changes})


class NodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a step changes on its Node. What is left out stays as it is."""

    because: str
    record: NodeRecord | None
    """Its state is that of the label; None: the node is no longer managed."""
    lease: NodeLease | UnsetType | None = UNSET
    """None: the engine has none afterwards."""
    cordon: bool | UnsetType | None = UNSET
    """True: ours. False: written outright, where another manager would keep it. None: given up."""
    driver_label: str | None = None
    """Empty: the label is removed, whoever set it."""
    initially_cordoned: bool | None = None
    mig_state: str | None = None
    taints: tuple[NodeTaint, ...] | None = None
    """All that the node has afterwards."""
    cleared: tuple[str, ...] = ()
    """Keys of labels and annotations that others set, and that the step answers."""
    lowers_capacity: bool = False
    """The write may make the node unavailable. The record then names the revisions that it was
    decided on, so that the audit can tell a decision on old data."""
    notes: Sequence[Notice] = ()
    before: Sequence[Action] = ()
    """They must succeed before the write: afterwards nobody would repeat them."""


def write_step(case: NodeCase, change: NodeChange) -> Step:
    """Build the step that writes the Node."""
    node = case.node
    lease = case.lease if change.lease is UNSET else change.lease
    record = _completed_record(case, change)
    removed = overwritten_keys(node, *_removed_fields(case, change, lease))
    applied = NodeApplyConfiguration(
        state="" if record is None else record.state,
        driver_label=_label_after(node, change, lease),
        lease=lease,
        record=record,
        unschedulable=unchanged_cordon(node) if change.cordon is UNSET else change.cordon,
        initially_cordoned=node.initially_cordoned
        if change.initially_cordoned is None
        else change.initially_cordoned,
        mig_state=_kept_mig_state(node, record) if change.mig_state is None else change.mig_state,
        taints=_kept_taints(node) if change.taints is None else change.taints,
        cleared=tuple(dict.fromkeys((*change.cleared, *removed))),
    )
    write = WriteNode(
        uid=node.uid,
        revision=node.revision,
        applied=applied,
        lowers_capacity=change.lowers_capacity,
    )
    return Step(actions=(*change.before, write, *change.notes), because=change.because)


def _completed_record(case: NodeCase, change: NodeChange) -> NodeRecord | None:
    """Return the record with what every write keeps up to date."""
    node, previous, record = case.node, case.node.current_record, change.record
    if record is None:
        return None
    if previous is not None:
        pod = current_driver_pod(node)
        record = replace(
            record,
            cordon_adopted=has_adopted_cordon(node, record),
            took=time_taken(previous, record, case.now, pulled=None if pod is None else pod.pulled),
        )
    if change.lowers_capacity:
        sources = case.now.visibility.sources
        record = replace(record, seen={name: each.revision for name, each in sources.items()})
    return record


def _label_after(node: NodeView, change: NodeChange, lease: NodeLease | None) -> str:
    """Return the driver label to apply; empty for a value of another manager, who keeps it."""
    if change.driver_label is not None:
        return change.driver_label
    is_recorded = change.record is not None and node.driver_label == change.record.label
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
    case: NodeCase, change: NodeChange, lease: NodeLease | None
) -> Iterator[NodeField]:
    """Yield the fields that a write without them is meant to remove."""
    if change.record is None and case.node.current_record is not None:
        yield NodeField.STATE
        yield NodeField.RECORD
    if lease is None and case.lease is not None:
        yield NodeField.LEASE
    if change.driver_label == "":
        yield NodeField.DRIVER


def overwritten_keys(node: NodeView, *fields: NodeField) -> tuple[str, ...]:
    """Return our keys that another manager wrote: an apply without them would leave them."""
    return tuple(_KEYS[field] for field in fields if node.other_managers(field))


def mark_required(
    case: NodeCase,
    record: NodeRecord,
    because: str,
    *,
    notes: tuple[Notice, ...] = (),
    cleared: tuple[str, ...] = (),
    **changes: Any,
) -> Step:
    """Write `upgrade-required`; the node keeps running as it is until the upgrade begins."""
    fields = {
        "state": UpgradeState.UPGRADE_REQUIRED.value,
        "pool": case.pool.key,
        "deadline": None,
        "paused": False,
        "restarts": (),
        **changes,
    }
    required = updated_record(case, record, **fields)
    return write_step(
        case, NodeChange(because=because, record=required, notes=notes, cleared=cleared)
    )


def unmark_required(case: NodeCase, record: NodeRecord, target: str) -> Step:
    """Write `upgrade-done`: the policy wants what the node runs, and that is proven."""
    done = updated_record(
        case,
        record,
        state=UpgradeState.UPGRADE_DONE.value,
        operation=None,
        target=target,
        label=case.node.driver_label,
        label_before="",
        cause="",
        outside=False,
        attempt=0,
        back_off_until=0.0,
        back_off_seconds=0.0,
    )
    because = "the policy wants the running, validated driver again"
    return write_step(case, NodeChange(because=because, record=done))
