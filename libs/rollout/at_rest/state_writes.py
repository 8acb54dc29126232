"""Writes to nodes at rest: `upgrade-required`, and back (docs/states.md#upgrade, step 1)."""

from typing import Any

from libs.contracts.node import NodeRecord, UpgradeState
from libs.rollout.decision import Notice, Step
from libs.rollout.node_writes import unchanged_cordon, updated_record, write_step
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView


def owned_label(node: NodeView, record: NodeRecord) -> str:
    """Return the driver label as far as we may apply it: a foreign value stays foreign."""
    label = node.driver_label
    return label if label == record.label or node.is_owned(NodeField.DRIVER) else ""


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
        driver_label=owned_label(node, record),
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
        edits=0,
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
