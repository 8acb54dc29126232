"""One write to a Node: the whole of what we own on it, put together in one place.

Every step that writes goes through `written`, so that state, driver label, lease, record and cordon
cannot come apart. Which write it is to be is decided elsewhere.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from libs.contracts.node import LeaseOwner, NodeLease, NodeRecord, Operation, UpgradeState
from libs.rollout import limits
from libs.rollout.budget import NON_DISRUPTIVE
from libs.rollout.decision import Action, NodeApplyConfiguration, Notice, Step, WriteNode
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView


def current_record(node: NodeView) -> NodeRecord | None:
    """The record, if there is one of this Node and not of an earlier one of its name."""
    record = node.record
    return record if isinstance(record, NodeRecord) and record.node_uid == node.uid else None


def current_lease(node: NodeView) -> NodeLease | None:
    """The lease, if there is one for this Node and not for an earlier one of its name."""
    lease = node.lease
    return lease if isinstance(lease, NodeLease) and lease.node_uid == node.uid else None


def upgrade_lease(node: NodeView) -> NodeLease | None:
    """The lease, if it is the engine's own."""
    lease = current_lease(node)
    return lease if lease and lease.owner is LeaseOwner.UPGRADE else None


def updated_record(record: NodeRecord, node: NodeView, now: Instant, **changes: Any) -> NodeRecord:
    """The record in another state, or attempt: since now, in this boot, under this epoch."""
    fresh = {"since": now.at, "boot_id": node.boot_id, "epoch": now.epoch, "node_uid": node.uid}
    return msgspec.structs.replace(record, **{**fresh, "deadline_renewed": False, **changes})


def record_in_state(
    state: UpgradeState,
    record: NodeRecord,
    node: NodeView,
    pool: PoolView,
    now: Instant,
    **changes: Any,
) -> NodeRecord:
    """The record in a state that begins now, with the limit of that state."""
    limited = {
        "state": state,
        "deadline": limits.deadline(state, pool, now),
        "frozen_seconds": pool.constraints.frozen_seconds,
    }
    return updated_record(record, node, now, **{**limited, **changes})


def current_driver_pod(node: NodeView) -> DriverPod | None:
    """The driver pod that the machine has now, rather than one that is about to go."""
    admitted = node.gate.admitted_pod_uid if node.gate is not None else ""
    pods = sorted(node.driver_pods, key=lambda pod: (pod.deleting, pod.uid != admitted))
    return pods[0] if pods else None


def unchanged_cordon(node: NodeView) -> bool | None:
    """What we apply of the cordon if nothing about it is to change."""
    return True if node.is_owned(NodeField.CORDON) and node.cordoned else None


def is_only_our_cordon(node: NodeView) -> bool:
    """Whether its cordon, if there is one, is ours and nobody else's."""
    return node.is_owned(NodeField.CORDON) and not node.other_managers(NodeField.CORDON)


def has_adopted_cordon(node: NodeView, record: NodeRecord) -> bool:
    """Whether the cordon is still that of the upgrade which was taken over.

    We share in it from then on; whoever takes it away, or sets it anew, takes our part too.
    """
    return record.cordon_adopted and node.is_owned(NodeField.CORDON)


def cordon_at_release(node: NodeView, record: NodeRecord, *, proven: bool) -> bool | None:
    """Ours is dropped, and stays where anybody else has it too (docs/states.md#writes).

    A node that had failed stays cordoned until it is proven to work.
    """
    if node.keep_cordoned or (record.unproven and not proven):
        return unchanged_cordon(node)
    if has_adopted_cordon(node, record) and node.cordoned and not node.initially_cordoned:
        return False
    return None


def needs_cordon(record: NodeRecord) -> bool:
    """Whether the operation under way keeps its node cordoned."""
    return record.operation not in NON_DISRUPTIVE


def record_for_restart(
    node: NodeView, record: NodeRecord, pool: PoolView, now: Instant, **changes: Any
) -> NodeRecord:
    """The record back where its driver is started: what came after is void.

    Modules that are loaded have to come out once more, for which operands are paused again.
    """
    old = current_driver_pod(node)
    loaded = node.loaded is not None and record.operation is not Operation.RESTART
    again = {
        "old_pod_uid": old.uid if old is not None else record.old_pod_uid,
        "paused": record.paused or loaded,
        "evidence": None,
    }
    state = UpgradeState.POD_RESTART_REQUIRED
    return record_in_state(state, record, node, pool, now, **{**again, **changes})


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
    cleared: tuple[str, ...] = (),
    lowers_capacity: bool = False,
    notes: Sequence[Notice] = (),
    before: Sequence[Action] = (),
) -> Step:
    """The step that writes this; the state label is the record's. None keeps what is there.

    `before` are actions that must have succeeded before the write, `lowers` says that it may make
    the node unavailable: the record then names what was seen.
    """
    known = current_record(node)
    if record is not None and known is not None:
        record = msgspec.structs.replace(record, cordon_adopted=has_adopted_cordon(node, record))
    if lowers_capacity and record is not None:
        seen = {name: source.revision for name, source in now.visibility.sources.items()}
        record = msgspec.structs.replace(record, seen=seen)
    applied = NodeApplyConfiguration(
        state="" if record is None else record.state,
        driver_label=node.driver_label if driver_label is None else driver_label,
        lease=lease,
        record=record,
        unschedulable=cordon,
        initially_cordoned=node.initially_cordoned
        if initially_cordoned is None
        else initially_cordoned,
        cleared=cleared,
    )
    write = WriteNode(
        uid=node.uid, revision=node.revision, applied=applied, lowers_capacity=lowers_capacity
    )
    return Step(actions=(*before, write, *notes), because=because)
