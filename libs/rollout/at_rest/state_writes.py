"""What is written on a node at rest: a new wish, and that a wish is no more.

docs/states.md#upgrade, step 1. Who wishes, and why, is decided elsewhere.
"""

from typing import Any

from libs.contracts.node import NodeRecord, UpgradeState
from libs.rollout.decision import Notice, Step
from libs.rollout.node_writes import unchanged_cordon, updated_record, write_step
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView


def owned_label(node: NodeView, record: NodeRecord) -> str:
    """The driver label as far as it is ours to apply: what somebody else put there stays his."""
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
    """It wants a change, and goes on as it is until that begins."""
    fresh = {
        "state": UpgradeState.UPGRADE_REQUIRED.value,
        "pool": pool.key,
        "deadline": None,
        "paused": False,
        "restarts": (),
        **changes,
    }
    return write_step(
        node,
        updated_record(record, node, now, **fresh),
        now,
        because=because,
        lease=None,
        cordon=unchanged_cordon(node),
        driver_label=owned_label(node, record),
        notes=notes,
        cleared=cleared,
    )


def unmark_required(node: NodeView, record: NodeRecord, target: str, now: Instant) -> Step:
    """It wants nothing any more: what it runs is what its policy renders, and it is proven."""
    back = updated_record(
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
        back,
        now,
        because="the policy wants the running, validated driver again",
        lease=None,
        cordon=unchanged_cordon(node),
    )
