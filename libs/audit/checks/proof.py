"""I3: a node that we changed returns to service on evidence, and on nothing else.

A node is changed when its driver label moves under a lease or its record says that it is started,
and it stays so until it returned on evidence; having failed counts as changed.
"""

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from libs.audit.checks.case import (
    CHANGING_COMMANDS,
    SKEW_SECONDS,
    STALE_SECONDS,
    AuditCase,
    write_violation,
)
from libs.audit.findings import AuditFinding, MissingSource
from libs.audit.replay.changes import NodeChange
from libs.audit.replay.nodes import ReplayedNode
from libs.contracts.commands import Order
from libs.contracts.identities import Writer
from libs.contracts.journal import EntryPhase
from libs.contracts.node import Operation, UpgradeState
from libs.contracts.reports import Evidence, Outcome

_Op = tuple[str, Order]
_DONE = UpgradeState.UPGRADE_DONE


class _Past(msgspec.Struct):
    """What of a node's past its next evidence must be younger than."""

    unproven: bool = False
    token: int = 0
    """Evidence of an older token proves nothing."""
    changed: int = -1
    """The token under which its driver was changed last."""
    changed_at: float = float("-inf")
    excused: bool = False
    """A person uncordoned it as it was, failed."""
    shown: str = ""
    """The state that we showed last."""

    @classmethod
    def of(cls, facts: ReplayedNode) -> "_Past":
        """Of a node that the journal finds like this."""
        record = facts.record
        started = record is not None and record.started
        token = record.token if record else 0
        if facts.failed:
            return cls(unproven=True, token=token + 1, shown=facts.state)
        return cls(unproven=started, token=token if started else 0, shown=facts.state)


class ReturnToService(msgspec.Struct, frozen=True):
    """A write that gave a node back, or took its driver away for good."""

    change: NodeChange
    past: _Past
    removed: bool = False


def returns(case: AuditCase) -> Iterator[ReturnToService]:
    """Every write of ours that needs proof."""
    pasts: dict[str, _Past] = {}
    for change in case.timeline.changes:
        past = pasts.get(change.node.uid)
        if past is None:
            past = pasts[change.node.uid] = _Past.of(change.before)
        if not change.ours:
            freed = change.before.cordoned and not change.after.cordoned
            past.excused = past.excused or (freed and change.before.failed)
            continue
        _learn_change(past, change)
        if _returns(past, change):
            removed = change.before.operation == Operation.REMOVE and change.after.state != _DONE
            yield ReturnToService(change, msgspec.structs.replace(past), removed)
            past.unproven = False
        if change.after.failed and not change.before.failed:
            record = change.after.record or change.before.record
            past.unproven, past.token = True, record.token + 1 if record else past.token
        past.shown = change.after.state


def _learn_change(past: _Past, change: NodeChange) -> None:
    lease, record = change.after.upgrade, change.after.record
    validates = change.after.operation == Operation.VALIDATE
    if lease is None or validates or not (change.label_moved or (record and record.started)):
        return
    before = change.before.record
    newly = not (before and before.started and before.token == lease.token)
    if newly or change.label_moved:
        past.unproven, past.excused = True, False
        past.token = past.changed = lease.token
        past.changed_at = change.revision.time


def _returns(past: _Past, change: NodeChange) -> bool:
    uncordoned = change.before.cordoned and not change.after.cordoned
    if change.after.failed:
        return past.unproven and uncordoned
    if change.new_state == _DONE and past.shown != _DONE:
        return True  # else a label that somebody edited is put back
    validated = change.lease_ended and change.before.operation == Operation.VALIDATE
    if validated and change.after.state == _DONE:
        return True
    # A person who has us adopt or forget a node gets it as it is, and cordoned.
    ended = change.lease_ended if not change.before.request else None
    if ended and ended.token == past.changed:
        return past.unproven
    back = uncordoned or (ended and not change.after.cordoned)
    return past.unproven and not past.excused and bool(back)


def proof(case: AuditCase) -> Iterator[AuditFinding]:
    """Each return, against its record and against what the agents wrote down."""
    finished = None if case.journal.entries is None else _Finished(case)
    unknown: set[str] = set()
    for one in returns(case):
        name = one.change.node.name
        if not one.change.before.boot_id:
            unknown.add(name)
        if problems := list(_removal(one, finished) if one.removed else _problems(case, one)):
            what = "was given back" if one.removed else "returned to service"
            yield write_violation(
                "I3", one.change, f"{name} {what} without proof: {'; '.join(problems)}"
            )
        elif finished and not one.removed and (problem := _unwitnessed(one, finished)):
            yield write_violation(
                "I3", one.change, f"{name} returned to service without proof: {problem}"
            )
    if unknown:
        yield MissingSource(
            invariant="I3", source=f"status.nodeInfo.bootID of {', '.join(sorted(unknown))}"
        )
    if finished is None:
        yield MissingSource(invariant="I3", source="entries")


def _problems(case: AuditCase, one: ReturnToService) -> Iterator[str]:
    change, past = one.change, one.past
    before, after = change.before, change.after
    evidence = _evidence(change)
    if evidence is None:
        yield "its record has no evidence"
        return
    if not evidence.passed:
        yield "its evidence did not pass"
    if evidence.node_uid != change.node.uid:
        yield f"its evidence is of node uid {evidence.node_uid}"
    if before.boot_id and evidence.boot_id != before.boot_id:
        yield f"its evidence is of boot {evidence.boot_id}, and this is boot {before.boot_id}"
    label = after.driver or (before.record.label if before.record else "")
    if evidence.label != label:
        yield f"its evidence is for label {evidence.label!r}, and it runs {label!r}"
    yield from _stale_evidence(evidence, past, change)
    if not evidence.driver_pod_uid and not evidence.driver_started:
        yield "its evidence names no instance of the driver"
    pod = case.timeline.pods.get(evidence.driver_pod_uid)
    if pod and pod.deletion and pod.deletion.time < change.revision.time - STALE_SECONDS:
        yield f"the driver pod {pod.name} of its evidence was gone since {pod.deletion.time:.0f}"


def _stale_evidence(evidence: Evidence, past: _Past, change: NodeChange) -> Iterator[str]:
    needed = past.token
    if change.lease_ended and change.before.operation == Operation.VALIDATE:
        needed = max(needed, change.lease_ended.token)
    if evidence.token < needed:
        yield f"its evidence is of token {evidence.token}, and token {needed} needs its own"
    record = change.after.record
    if record and evidence.token > record.token:
        yield f"its evidence is of token {evidence.token}, which was never given"
    if 0 < evidence.at < past.changed_at - SKEW_SECONDS:
        yield f"its evidence is of {evidence.at:.0f}, before the last change of the driver"


def _evidence(change: NodeChange) -> Evidence | None:
    return change.after.record.evidence if change.after.record else None


class _Finished:
    """What agents wrote down as done."""

    def __init__(self, case: AuditCase) -> None:
        self.validations: dict[_Op, list[tuple[str, float]]] = defaultdict(list)
        self.swaps: set[tuple[str, int]] = set()
        for entry in case.entries:
            if entry.phase != EntryPhase.FINISHED or entry.result is None:
                continue
            if entry.result.outcome != Outcome.DONE:
                continue
            if entry.component == Writer.VALIDATOR:
                done = entry.boot_id, entry.time
                self.validations[entry.node_uid, entry.order].append(done)
            elif entry.component == Writer.DRIVER and entry.command in CHANGING_COMMANDS:
                self.swaps.add((entry.node_uid, entry.token))


def _unwitnessed(one: ReturnToService, finished: _Finished) -> str:
    """The validator wrote down, before the return, that it passed."""
    change, evidence = one.change, _evidence(one.change)
    if evidence is None:
        return ""
    by = change.revision.time + SKEW_SECONDS
    known = finished.validations[change.node.uid, evidence.order]
    if any(boot == evidence.boot_id and time <= by for boot, time in known):
        return ""
    return f"its validator never ended validation {evidence.order} as done on this boot"


def _removal(one: ReturnToService, finished: _Finished | None) -> Iterator[str]:
    """The driver agent wrote down that it is out."""
    token = one.change.lease_ended.token if one.change.lease_ended else 0
    if finished and (one.change.node.uid, token) not in finished.swaps:
        yield f"no driver agent ended a swap under token {token}"
