"""I3: a node that we changed returns to service only on evidence.

A node counts as changed from the moment its driver label moves under a lease or its record says
`started`, until it returns on evidence. A failed node counts as changed.
"""

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from libs.audit.case import (
    CHANGING_COMMANDS,
    SKEW_SECONDS,
    STALE_SECONDS,
    AuditCase,
    AuditFinding,
    MissingSource,
    write_violation,
)
from libs.audit.nodes import ReplayedNode
from libs.audit.timeline import NodeChange
from libs.contracts.commands import Order
from libs.contracts.identities import Writer
from libs.contracts.journal import EntryPhase
from libs.contracts.node import Operation, UpgradeState
from libs.contracts.reports import Evidence, Outcome

_Op = tuple[str, Order]
_DONE = UpgradeState.UPGRADE_DONE


class _ProofState(msgspec.Struct):
    """What the next evidence of a node has to prove."""

    unproven: bool = False
    token: int = 0
    """The lowest token whose evidence counts."""
    changed: int = -1
    """The token under which the driver was last changed."""
    changed_at: float = float("-inf")
    excused: bool = False
    """Whether a person uncordoned the node although it had failed."""
    state: str = ""
    """The state that we wrote last."""

    @classmethod
    def at_start(cls, node: ReplayedNode) -> "_ProofState":
        record = node.record
        started = record is not None and record.started
        token = record.token if record else 0
        if node.failed:
            return cls(unproven=True, token=token + 1, state=node.state)
        return cls(unproven=started, token=token if started else 0, state=node.state)


class ReturnToService(msgspec.Struct, frozen=True):
    """A write that returned a node to service, or finished the removal of its driver."""

    change: NodeChange
    proof: _ProofState
    removed: bool = False


def returns(case: AuditCase) -> Iterator[ReturnToService]:
    """Return every write of ours that needs proof."""
    states: dict[str, _ProofState] = {}
    for change in case.timeline.changes:
        proof = states.get(change.node.uid)
        if proof is None:
            proof = states[change.node.uid] = _ProofState.at_start(change.before)
        if not change.ours:
            uncordoned = change.before.cordoned and not change.after.cordoned
            proof.excused = proof.excused or (uncordoned and change.before.failed)
            continue
        _observe_change(proof, change)
        if _returns(proof, change):
            removed = change.before.operation == Operation.REMOVE and change.after.state != _DONE
            yield ReturnToService(change, msgspec.structs.replace(proof), removed)
            proof.unproven = False
        if change.after.failed and not change.before.failed:
            record = change.after.record or change.before.record
            proof.unproven, proof.token = True, record.token + 1 if record else proof.token
        proof.state = change.after.state


def _observe_change(proof: _ProofState, change: NodeChange) -> None:
    lease, record = change.after.upgrade, change.after.record
    validates = change.after.operation == Operation.VALIDATE
    if lease is None or validates or not (change.label_moved or (record and record.started)):
        return
    before = change.before.record
    newly = not (before and before.started and before.token == lease.token)
    if newly or change.label_moved:
        proof.unproven, proof.excused = True, False
        proof.token = proof.changed = lease.token
        proof.changed_at = change.revision.time


def _returns(proof: _ProofState, change: NodeChange) -> bool:
    uncordoned = change.before.cordoned and not change.after.cordoned
    if change.after.failed:
        return proof.unproven and uncordoned
    if change.new_state == _DONE and proof.state != _DONE:
        return True  # otherwise the write only reverts an edit of the label
    validated = change.lease_ended and change.before.operation == Operation.VALIDATE
    if validated and change.after.state == _DONE:
        return True
    # An adopt or forget request hands the node over as it is, and cordoned.
    ended = change.lease_ended if not change.before.request else None
    if ended and ended.token == proof.changed:
        return proof.unproven
    returned = uncordoned or (ended and not change.after.cordoned)
    return proof.unproven and not proof.excused and bool(returned)


def proof(case: AuditCase) -> Iterator[AuditFinding]:
    """Check each return against the record of the node and the journals of the agents."""
    finished = None if case.journal.entries is None else _FinishedOps(case)
    without_boot_id: set[str] = set()
    for item in returns(case):
        name = item.change.node.name
        if not item.change.before.boot_id:
            without_boot_id.add(name)
        if item.removed:
            returned = "was released"
            problems = list(_removal_problems(item, finished))
        else:
            returned = "returned to service"
            problems = list(_evidence_problems(case, item))
            if finished and not problems:
                problems = list(_validator_problems(item, finished))
        if problems:
            message = f"{name} {returned} without proof: {'; '.join(problems)}"
            yield write_violation("I3", item.change, message)
    if without_boot_id:
        names = ", ".join(sorted(without_boot_id))
        yield MissingSource(invariant="I3", source=f"status.nodeInfo.bootID of {names}")
    if finished is None:
        yield MissingSource(invariant="I3", source="entries")


def _evidence_problems(case: AuditCase, item: ReturnToService) -> Iterator[str]:
    change = item.change
    before, after = change.before, change.after
    evidence = _evidence(change)
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
    yield from _stale_evidence(evidence, item.proof, change)
    if not evidence.driver_pod_uid and not evidence.driver_started:
        yield "its evidence names no instance of the driver"
    pod = case.timeline.pods.get(evidence.driver_pod_uid)
    if pod and pod.deletion and pod.deletion.time < change.revision.time - STALE_SECONDS:
        yield f"the driver pod {pod.name} of its evidence was deleted at {pod.deletion.time:.0f}"


def _stale_evidence(evidence: Evidence, proof: _ProofState, change: NodeChange) -> Iterator[str]:
    needed = proof.token
    if change.lease_ended and change.before.operation == Operation.VALIDATE:
        needed = max(needed, change.lease_ended.token)
    if evidence.token < needed:
        yield f"its evidence is of token {evidence.token}, but token {needed} needs new evidence"
    record = change.after.record
    if record and evidence.token > record.token:
        yield f"its evidence is of token {evidence.token}, which was never issued"
    if 0 < evidence.at < proof.changed_at - SKEW_SECONDS:
        yield f"its evidence is of {evidence.at:.0f}, older than the last change of the driver"


def _evidence(change: NodeChange) -> Evidence | None:
    return change.after.record.evidence if change.after.record else None


class _FinishedOps:
    """The ops that agents journaled as done."""

    def __init__(self, case: AuditCase) -> None:
        self.validations: dict[_Op, list[tuple[str, float]]] = defaultdict(list)
        self.swaps: set[tuple[str, int]] = set()
        for entry in case.entries:
            if entry.phase != EntryPhase.FINISHED or entry.result is None:
                continue
            if entry.result.outcome != Outcome.DONE:
                continue
            if entry.component == Writer.VALIDATOR:
                validation = entry.boot_id, entry.time
                self.validations[entry.node_uid, entry.order].append(validation)
            elif entry.component == Writer.DRIVER and entry.command in CHANGING_COMMANDS:
                self.swaps.add((entry.node_uid, entry.token))


def _validator_problems(item: ReturnToService, finished: _FinishedOps) -> Iterator[str]:
    """Check that the validator journaled the passed validation before the return."""
    change, evidence = item.change, _evidence(item.change)
    if evidence is None:
        return
    latest = change.revision.time + SKEW_SECONDS
    validations = finished.validations[change.node.uid, evidence.order]
    if not any(boot == evidence.boot_id and time <= latest for boot, time in validations):
        yield f"its validator did not journal validation {evidence.order} as passed on this boot"


def _removal_problems(item: ReturnToService, finished: _FinishedOps | None) -> Iterator[str]:
    """Check that the driver agent journaled the removal of the driver."""
    token = item.change.lease_ended.token if item.change.lease_ended else 0
    if finished and (item.change.node.uid, token) not in finished.swaps:
        yield f"no driver agent journaled a finished swap under token {token}"
