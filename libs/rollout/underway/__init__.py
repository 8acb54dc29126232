"""Nodes under a lease of ours: one small function for each state of an upgrade.

docs/states.md#upgrade reads in the same order. Here may live: what a state does and waits for, what
turns a node back before step 6, and how a lease ends. Must not know which nodes may begin, what
people did to a node (`edits`), or what is done about nodes without a lease (`rest`).
"""

from collections.abc import Callable, Mapping
from typing import Final

from libs.contracts.node import Operation, UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout import slots, waiting
from libs.rollout.decision import Outcome, Step
from libs.rollout.underway.beginning import begin
from libs.rollout.underway.emptying import drain, pod_deletion, wait_for_jobs
from libs.rollout.underway.ending import fail, failing
from libs.rollout.underway.flight import Flight
from libs.rollout.underway.restarting import pod_restart
from libs.rollout.underway.turning import rebooted, turned
from libs.rollout.underway.validating import validation
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.writes import readable, upgrading

__all__ = ["begin", "underway"]

STATES: Final[Mapping[str, Callable[[Flight], Outcome]]] = {
    UpgradeState.WAIT_FOR_JOBS_REQUIRED: wait_for_jobs,
    UpgradeState.POD_DELETION_REQUIRED: pod_deletion,
    UpgradeState.DRAIN_REQUIRED: drain,
    UpgradeState.POD_RESTART_REQUIRED: pod_restart,
    UpgradeState.VALIDATION_REQUIRED: validation,
}


def underway(node: NodeView, pool: PoolView, now: Instant) -> Outcome:
    """What is done now about a node under a lease of ours, or what it waits for."""
    record, lease = readable(node), upgrading(node)
    if record is None or lease is None or record.state not in STATES:
        why = "it has a lease of ours, and no record that says what is being done"
        return waiting.wait(WaitCode.RECORD_LOST, why, now)
    f = Flight(node=node, pool=pool, now=now, record=record, lease=lease)
    if failing(f):
        return _adopted(f) or fail(f, record.cause)
    changed = record.started or record.operation is Operation.VALIDATE
    return _adopted(f) or (rebooted(f) if changed else turned(f)) or STATES[record.state](f)


def _adopted(f: Flight) -> Step | None:
    """A new leader's epoch is in the slots before it has any effect (docs/states.md#leading)."""
    actions = () if f.deaf else slots.adopted(f.node, f.now)
    if not actions:
        return None
    return Step(actions=actions, because=f"slots of an earlier leader are under {f.now.epoch} now")
