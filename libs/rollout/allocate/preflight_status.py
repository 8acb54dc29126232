"""The status of a candidate's preflight check: could this driver be brought up on the node?

An answer is valid for a minute, in its boot, for its label, and what it found only while no more
pods are known to leave. No answer within ten seconds counts as a failed check.
"""

from enum import Enum, auto
from typing import Final

import msgspec

from libs.contracts.commands import CHECK_VALID_SECONDS, PreflightCheck
from libs.contracts.node import WaitCode
from libs.rollout.decision import Candidate, Wait
from libs.rollout.views.machine import PreflightQuery
from libs.rollout.views.node import NodeView
from libs.rollout.wait_reasons import RESOLVED_BY

ANSWER_SECONDS: Final = 10.0


class PreflightPhase(Enum):
    CLEAR = auto()
    """Nothing stands in the way, or no check is needed."""
    NEEDED = auto()
    """The check has to be requested."""
    PENDING = auto()
    """The check was requested and has time to be answered."""
    BLOCKED = auto()
    """A finding, or no answer: the other candidates go on."""


class PreflightStatus(msgspec.Struct, frozen=True, kw_only=True):
    phase: PreflightPhase
    wait: Wait | None = None
    due: float | None = None
    """When time alone changes the status; if blocked, when to repeat the check."""
    is_pending: bool = False
    """A request is not answered yet."""


_CLEAR: Final = PreflightStatus(phase=PreflightPhase.CLEAR)
_REQUIRED: Final = PreflightStatus(phase=PreflightPhase.NEEDED)


def preflight_status(
    node: NodeView, candidate: Candidate, before: WaitCode | None, now: float
) -> PreflightStatus:
    """Return the status; `before` is the node's wait code at the last decision."""
    check, query = candidate.check, node.preflight
    if check is None:
        return _CLEAR
    if query is None or query.label != check.label:
        return _REQUIRED
    if query.answered_at is not None and query.answered_at >= query.asked_at:
        return _answered(query, query.answered_at, check, now)
    return _unanswered(query, before, now)


def _answered(
    query: PreflightQuery, answered_at: float, check: PreflightCheck, now: float
) -> PreflightStatus:
    if query.answer is not None and query.answer.findings:
        due = (
            answered_at if _found_leaving_pods(query, check) else answered_at + CHECK_VALID_SECONDS
        )
        return PreflightStatus(phase=PreflightPhase.BLOCKED, wait=_found(query, now), due=due)
    return _CLEAR if now < answered_at + CHECK_VALID_SECONDS else _REQUIRED


def _found_leaving_pods(query: PreflightQuery, check: PreflightCheck) -> bool:
    return query.removes is not None and not set(query.removes).issuperset(check.removes_pods)


def _unanswered(query: PreflightQuery, before: WaitCode | None, now: float) -> PreflightStatus:
    answer_due = query.asked_at + ANSWER_SECONDS
    repeat_at = query.asked_at + CHECK_VALID_SECONDS
    is_pending = now < answer_due
    if query.answer is not None and query.answer.findings:
        due = answer_due if is_pending else repeat_at
        return PreflightStatus(
            phase=PreflightPhase.BLOCKED, wait=_found(query, now), due=due, is_pending=is_pending
        )
    if not is_pending or before is WaitCode.AGENT_SILENT:
        due = answer_due if is_pending else repeat_at
        return PreflightStatus(
            phase=PreflightPhase.BLOCKED, wait=_silent(now), due=due, is_pending=is_pending
        )
    return PreflightStatus(phase=PreflightPhase.PENDING, due=answer_due, is_pending=True)


def _found(query: PreflightQuery, now: float) -> Wait:
    findings = query.answer.findings if query.answer is not None else ()
    return Wait(
        code=WaitCode.PREFLIGHT,
        detail=f"preflight check failed: {'; '.join(finding.message for finding in findings)}",
        since=now,
        who="; ".join(f"{finding.code}: {finding.remedy}" for finding in findings if finding.remedy)
        or RESOLVED_BY[WaitCode.PREFLIGHT],
    )


def _silent(now: float) -> Wait:
    return Wait(
        code=WaitCode.AGENT_SILENT,
        detail=f"the driver agent did not answer the preflight check within {ANSWER_SECONDS:g} s",
        since=now,
        who="an administrator of the driver agent",
    )
