"""I3: a node that we changed returns to service only on evidence.

A node counts as changed from the moment its driver label moves under a lease or its record says
`started`, until it returns on evidence. A failed node counts as changed.
"""

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from libs.audit.case import (
    CHANGING_COMMANDS,
    JOURNAL,
    AuditCase,
    AuditFinding,
    MissingSource,
    write_violation,
)
from libs.audit.instances import instance_problems
from libs.audit.nodes import NodeHistory
from libs.audit.timeline import NodeChange
from libs.contracts.commands import CommandKind, Order
from libs.contracts.identities import Writer
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.node import Operation, UpgradeState
from libs.contracts.reports import Evidence, Outcome

_DONE = UpgradeState.UPGRADE_DONE
_Validation = tuple[str, str, Order]
"""Node uid, boot id and order."""


class _ProofState(msgspec.Struct):
    """The requirements on the next evidence of a node."""

    unproven: bool
    token: int
    """Evidence of a lower token does not count."""
    state: str
    """The state that we wrote last."""
    changed: int = -1
    """The token under which the driver was last changed."""
    changed_at: float = float("-inf")
    excused: bool = False
    """Whether a person uncordoned the node although it had failed."""

    @classmethod
    def at_start(cls, history: NodeHistory) -> "_ProofState":
        node = history.at(-1)
        started = node.record is not None and node.record.started
        token = node.record.token if node.record and (started or node.failed) else 0
        return cls(started or node.failed, token + node.failed, node.state)

    def observe_before_check(self, change: NodeChange) -> None:
        """Account for a write that changes the driver, or for an uncordon by a person."""
        if not change.by_scheduler:
            self.excused = self.excused or (change.uncordoned and change.before.failed)
            return
        lease, record, before = change.after.upgrade, change.after.record, change.before.record
        started = record is not None and record.started
        if lease is None or change.after.operation == Operation.VALIDATE:
            return
        newly = started and not (before and before.started and before.token == lease.token)
        if newly or change.label_moved:
            self.unproven, self.excused = True, False
            self.token = self.changed = lease.token
            self.changed_at = change.revision.time

    def returns(self, change: NodeChange) -> bool:
        """Report whether a write of ours returns the node to service, and so needs proof."""
        if change.after.failed:
            return self.unproven and change.uncordoned
        if change.new_state == _DONE and self.state != _DONE:
            record, operation = change.before.record, change.before.operation
            if operation == Operation.MIG and record is not None and not record.started:
                return self.unproven  # released unchanged: it was done before, too
            return True  # otherwise the write only reverts an edit of the label
        validated = change.lease_ended and change.before.operation == Operation.VALIDATE
        if validated and change.after.state == _DONE:
            return True
        # An adopt or forget request hands the node over as it is, and cordoned.
        ended = change.lease_ended if not change.before.request else None
        if ended and ended.token == self.changed:
            return self.unproven
        returned = change.uncordoned or (ended and not change.after.cordoned)
        return self.unproven and not self.excused and bool(returned)

    def observe_after_check(self, change: NodeChange, *, returned: bool) -> None:
        """Account for a return, and for a failure."""
        if returned:
            self.unproven = False
        if change.after.failed and not change.before.failed:
            record = change.after.record or change.before.record
            self.unproven, self.token = True, record.token + 1 if record else self.token
        self.state = change.after.state


def proof(case: AuditCase) -> Iterator[AuditFinding]:
    """Check each return against the record of the node and the journals of the agents."""
    finished = None if case.journal.entries is None else _FinishedOps(case)
    without_boot_id: set[str] = set()
    unread: set[str] = set()
    pods_missing = False
    for change, state in case.timeline.changes_with(_ProofState.at_start):
        name = change.node.name
        state.observe_before_check(change)
        if not change.by_scheduler:
            continue
        if returned := state.returns(change):
            if not change.before.boot_id:
                without_boot_id.add(name)
            removed = change.before.operation == Operation.REMOVE and change.after.state != _DONE
            action = "was released" if removed else "returned to service"
            if finished and (journal := _missing_journal(case, change, removed=removed)):
                unread.add(journal)
            if removed:
                problems = list(_removal_problems(case, change, finished))
            else:
                problems = _return_problems(case, change, state, finished)
                pods_missing |= _names_pod(change) and not case.timeline.pods
            if problems:
                message = f"{name} {action} without proof: {'; '.join(problems)}"
                yield write_violation("I3", change, message)
        state.observe_after_check(change, returned=returned)
    if without_boot_id:
        names = ", ".join(sorted(without_boot_id))
        yield MissingSource(invariant="I3", source=f"status.nodeInfo.bootID of {names}")
    if finished is None:
        yield MissingSource(invariant="I3", source="entries")
    yield from (MissingSource(invariant="I3", source=each) for each in sorted(unread))
    if pods_missing:
        yield MissingSource(invariant="I3", source="Pods")


def _return_problems(
    case: AuditCase, change: NodeChange, state: _ProofState, finished: "_FinishedOps | None"
) -> list[str]:
    """Return why the evidence is no proof: what it says, else what the Pods, else the validator."""
    problems = list(_evidence_problems(case, change, state))
    evidence = _evidence(change)
    if evidence and not problems:
        problems = list(instance_problems(case, change, evidence))
    has_journal = finished and not _missing_journal(case, change, removed=False)
    if evidence and finished and has_journal and not problems:
        problems = list(_validator_problems(case, change, evidence, finished))
    return problems


def _evidence(change: NodeChange) -> Evidence | None:
    return change.after.record.evidence if change.after.record else None


def _names_pod(change: NodeChange) -> bool:
    evidence = _evidence(change)
    return evidence is not None and bool(evidence.driver_pod_uid)


def _evidence_problems(case: AuditCase, change: NodeChange, state: _ProofState) -> Iterator[str]:
    before, after, evidence = change.before, change.after, _evidence(change)
    if evidence is None:
        yield "its record has no evidence"
        return
    if not evidence.passed:
        yield "its evidence is of a failed validation"
    if evidence.node_uid != change.node.uid:
        yield f"its evidence is of node uid {evidence.node_uid}"
    if before.boot_id and evidence.boot_id != before.boot_id:
        yield f"its evidence is of boot {evidence.boot_id}, but the node runs boot {before.boot_id}"
    label = after.driver or (before.record.label if before.record else "")
    if evidence.label != label:
        yield f"its evidence is for label {evidence.label!r}, but the node runs {label!r}"
    needed = state.token
    if change.lease_ended and before.operation == Operation.VALIDATE:
        needed = max(needed, change.lease_ended.token)
    if evidence.token < needed:
        yield f"its evidence is of token {evidence.token}, but token {needed} needs new evidence"
    if after.record and evidence.token > after.record.token:
        yield f"its evidence is of token {evidence.token}, which was never issued"
    if 0 < evidence.at < state.changed_at - case.clocks.skew(change.node.uid):
        yield f"its evidence is of {evidence.at:.0f}, older than the last change of the driver"
    if not evidence.driver_pod_uid and not evidence.driver_started:
        yield "its evidence names no instance of the driver"
    if after.record and after.record.mig_digest and not after.record.mig_failed:
        found, wanted = evidence.mig_digest, after.record.mig_digest
        if found != wanted:
            yield f"its evidence names the MIG geometry {found!r}, but {wanted!r} was asked"


class _FinishedOps:
    """The ops that agents journaled as done, and the validations that they began."""

    def __init__(self, case: AuditCase) -> None:
        self.validations: dict[_Validation, list[float]] = defaultdict(list)
        """The times at which each validation passed."""
        self.begun: dict[tuple[str, str], list[Entry]] = defaultdict(list)
        """By node uid and boot id the starts of validations."""
        self.swaps: set[tuple[str, int]] = set()
        for entry in case.entries:
            is_validator = entry.component == Writer.VALIDATOR
            is_done = entry.result is not None and entry.result.outcome == Outcome.DONE
            if entry.phase == EntryPhase.STARTED and entry.command == CommandKind.VALIDATE:
                self.begun[entry.node_uid, entry.boot_id].append(entry)
            elif entry.phase != EntryPhase.FINISHED or not is_done:
                continue
            elif is_validator:
                self.validations[entry.node_uid, entry.boot_id, entry.order].append(entry.time)
            elif entry.component == Writer.DRIVER and entry.command in CHANGING_COMMANDS:
                self.swaps.add((entry.node_uid, entry.token))


def _validator_problems(
    case: AuditCase, change: NodeChange, evidence: Evidence, finished: _FinishedOps
) -> Iterator[str]:
    """Check the evidence against the journal of the validator, up to the return."""
    uid, order, now = change.node.uid, evidence.order, change.revision.time
    passed, skew = finished.validations[uid, evidence.boot_id, order], case.clocks.skew(uid)
    if not any(time <= now + skew for time in passed):
        yield f"its validator did not journal validation {order} as passed on this boot"
        return
    if not any(evidence.at <= time + skew for time in passed):
        yield f"its evidence is of {evidence.at:.0f}, after its validation {order} had ended"
    begun = finished.begun[uid, evidence.boot_id]
    first = min((entry.time for entry in begun if entry.order == order), default=evidence.at)
    if 0 < evidence.at < first - skew:
        yield f"its evidence is of {evidence.at:.0f}, before its validation {order} began"
    for entry in begun:
        later = entry.order > order and entry.token == order.token
        if later and entry.time < now - skew:
            yield f"its evidence is of validation {order}, but {entry.order} had begun"
            return


def _missing_journal(case: AuditCase, change: NodeChange, *, removed: bool) -> str:
    """Return the journal without which a return or a removal is not judged; empty: it is there."""
    evidence, lease = _evidence(change), change.lease_ended
    if removed:
        component, since = Writer.DRIVER, lease.since if lease else 0.0
    else:
        component, since = (
            Writer.VALIDATOR,
            evidence.at - case.clocks.skew(change.node.uid) if evidence else 0.0,
        )
    uid, name = change.node.uid, change.node.name
    if case.has_journal(uid, component, since) or not (removed or evidence):
        return ""
    return f"{JOURNAL} {component} on {name}"


def _removal_problems(
    case: AuditCase, change: NodeChange, finished: _FinishedOps | None
) -> Iterator[str]:
    """Check that the driver agent journaled the removal of the driver."""
    token = change.lease_ended.token if change.lease_ended else 0
    if _missing_journal(case, change, removed=True):
        return
    if finished and (change.node.uid, token) not in finished.swaps:
        yield f"no driver agent journaled a finished swap under token {token}"
