"""I4, the cordon: a released node is cordoned exactly where others want it cordoned.

Others want what they wrote last, as far as a revision shows it. Cordoning a node that we have
already cordoned writes nothing; the label `sluice.dev/keep-cordoned` expresses it instead.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from libs.audit.checks.case import AuditCase, write_violation
from libs.audit.findings import AuditFinding
from libs.audit.replay.changes import NodeChange
from libs.audit.replay.nodes import UNSCHEDULABLE, NodeHistory
from libs.contracts.node import MANAGER, UpgradeState

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
