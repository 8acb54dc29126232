"""I4, the cordon: a released node is cordoned if somebody else wants it so, and only then.

What others want is what they wrote last, as far as a revision shows it: cordoning a node that we
have cordoned writes nothing, and is said by the label `sluice.dev/keep-cordoned` instead.
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
    """What others want of a node's cordon."""

    cordoned: bool | None
    """None: nobody knows."""
    ours: bool
    """Whether we ever wrote on it."""
    unproven: bool = False
    """It failed since it was last well, or a person had us adopt or forget it under our cordon:
    that stays through an attempt that comes to nothing."""

    @classmethod
    def of(cls, life: NodeHistory) -> "DesiredCordon":
        """At the beginning."""
        known = life.cordoned_by_others
        if life.is_complete and not life.at(-1).exists:
            known = False  # it is made in this journal
        return cls(cordoned=known, ours=life.was_ours, unproven=life.at(-1).failed)

    def learn_before(self, change: NodeChange) -> None:
        """What follows from our taking the node up."""
        if not change.ours or self.ours:
            return
        self.ours = True
        before = change.before
        if before.state in IN_PROGRESS and before.record is None:
            # Without that mark the cordon was the GPU Operator's, and ends with what we took over.
            self.cordoned = before.initially_cordoned and before.cordoned

    def learn_after(self, change: NodeChange) -> None:
        """What somebody else wrote, and how what we did ended."""
        if not change.ours and UNSCHEDULABLE in change.revision.changed:
            self.cordoned = change.after.cordoned
        lost = change.before.record if change.after.record is None else None
        if not change.ours and lost is not None and lost.cordon_adopted:
            self.cordoned = None  # whose it had been was said nowhere else
        if change.ours and (change.after.failed or change.new_state == UpgradeState.UPGRADE_DONE):
            self.unproven = change.after.failed
        if change.ours and change.before.request and change.after.lease is None:
            self.unproven = self.unproven or (change.after.cordoned and self.cordoned is False)


def cordons(case: AuditCase) -> Iterator[AuditFinding]:
    """Each write of ours that takes a cordon away, or ends the lease for which it was."""
    wishes: dict[str, DesiredCordon] = {}
    for change in case.timeline.changes:
        wish = wishes.setdefault(change.node.uid, DesiredCordon.of(change.node))
        wish.learn_before(change)
        if change.ours and (message := _message(change, wish)):
            yield write_violation("I4", change, f"{change.node.name} {message}")
        wish.learn_after(change)


def _message(change: NodeChange, wish: DesiredCordon) -> str:
    before, after = change.before, change.after
    if not after.exists:
        return ""
    uncordoned = before.cordoned and not after.cordoned
    if uncordoned and before.keeps_cordon:
        return "was uncordoned, though sluice.dev/keep-cordoned says that it stays"
    if uncordoned and wish.cordoned:
        return f"was uncordoned, and {_owner(change)} had cordoned it"
    if after.cordoned and not before.cordoned and not (before.upgrade or after.upgrade):
        return f"was cordoned without a lease, after {_owner(change)} had uncordoned it"
    # A person who has us adopt or forget a node decides about its cordon himself.
    released = (
        change.lease_ended and not after.failed and after.lease is None and not before.request
    )
    kept = before.keeps_cordon or (wish.unproven and after.state == UpgradeState.UPGRADE_REQUIRED)
    if released and after.cordoned and wish.cordoned is False and not kept:
        return "was released, and our cordon is still on it"
    return ""


def _owner(change: NodeChange) -> str:
    owner = change.over.get(UNSCHEDULABLE)
    return owner if owner and owner != MANAGER else "somebody else"
