"""I1 and I8: every start is granted on the Rollout of its pool, before the first write to the Node.

A grant is an entry in flight with the token of the lease and the target of the record. It has to be
there when the write arrives: the place of a grant that was withdrawn may belong to another node.
"""

from collections.abc import Iterator
from typing import Final

from libs.audit.case import ROUND_SECONDS, AuditCase, AuditFinding, MissingSource, write_violation
from libs.audit.object_writes import Grant, RolloutWrite
from libs.audit.pools import in_journal_order
from libs.audit.timeline import NodeChange
from libs.contracts.node import NodeRecord, Operation

_Key = tuple[str, str, Grant]
"""Pool, node uid and grant."""

_NEVER: Final = float("-inf")


class _Grants:
    """The grants in the Rollouts up to a position of the journal."""

    def __init__(self) -> None:
        self._present: dict[str, dict[str, Grant]] = {}
        """By pool and node uid."""
        self._shown: dict[str, frozenset[str] | None] = {}
        self._withdrawn: dict[_Key, float] = {}
        """The time at which a Rollout ceased to show a grant."""

    def observe(self, write: RolloutWrite) -> None:
        before = self._present.get(write.pool, {})
        for uid, grant in before.items():
            if write.grants.get(uid) != grant:
                self._withdrawn[write.pool, uid, grant] = write.time
        self._present[write.pool] = dict(write.grants)
        self._shown[write.pool] = write.shown

    def knows(self, pool: str) -> bool:
        return pool in self._present

    def shows(self, pool: str, uid: str) -> bool:
        """Report whether the journal shows what was granted to a node: it may begin later."""
        shown = self._shown[pool]
        return shown is None or uid in shown

    def includes(self, pool: str, uid: str, grant: Grant, time: float) -> bool:
        """Report whether a write at a time, decided within a round before it, was granted."""
        if self._present[pool].get(uid) == grant:
            return True
        return time - self._withdrawn.get((pool, uid, grant), _NEVER) <= ROUND_SECONDS


def grants(case: AuditCase) -> Iterator[AuditFinding]:
    """Check each write that takes a lease, moves the driver label, or takes another target."""
    known = _Grants()
    without_rollout: set[str] = set()
    for item in in_journal_order(case.timeline):
        if isinstance(item, RolloutWrite):
            known.observe(item)
        elif isinstance(item, NodeChange) and item.by_scheduler and (action := _action(item)):
            pool, record = item.after.pool, item.after.record
            grant = Grant(record.token, granted_target(record)) if record else Grant(0, "")
            if not known.knows(pool) or not known.shows(pool, item.node.uid):
                without_rollout.add(pool)
            elif not known.includes(pool, item.node.uid, grant, item.revision.time):
                invariant = "I8" if item.label_moved else "I1"
                message = (
                    f"{item.node.name} {action} under token {grant.token} for target"
                    f" {grant.target or 'none'}, which the Rollout of pool {pool} did not grant"
                )
                yield write_violation(invariant, item, message)
    for pool in sorted(without_rollout):
        for invariant in ("I1", "I8"):
            yield MissingSource(invariant=invariant, source=f"the Rollout of pool {pool}")


def _action(change: NodeChange) -> str:
    """Return what a write does that needs a grant; empty if it needs none."""
    before, after = change.before, change.after
    if after.upgrade is None or after.record is None:
        return ""
    if change.label_moved:
        return "was started"
    if change.lease_taken or before.upgrade != after.upgrade:
        return "was leased"
    was_for = granted_target(before.record) if before.record else ""
    return "was moved" if granted_target(after.record) != was_for else ""


def granted_target(record: NodeRecord) -> str:
    """Return the target that the grant names: none where only the GPUs are divided."""
    return "" if record.operation is Operation.MIG else record.target
