"""The status of a candidate's preflight check: could this driver be brought up on the node?

An answer is valid for a minute, in its boot, for its label, and what it found only while no more
pods are known to leave. No answer within ten seconds counts as a failed check.
"""

from enum import Enum, auto
from typing import Final

import msgspec

from libs.contracts.commands import CHECK_VALID_SECONDS, PreflightCheck
from libs.contracts.waits import WaitCode
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
_OPEN: Final = PreflightStatus(phase=PreflightPhase.NEEDED)


def preflight_status(
    node: NodeView, candidate: Candidate, before: WaitCode | None, now: float
) -> PreflightStatus:
    """Return the status; `before` is the node's wait code at the last decision."""
    check, asked = candidate.check, node.preflight
    if check is None:
        return _CLEAR
    if asked is None or asked.label != check.label:
        return _OPEN
    if asked.answered_at is not None and asked.answered_at >= asked.asked_at:
        return _answered(asked, asked.answered_at, check, now)
    return _asked(asked, before, now)


def _answered(
    asked: PreflightQuery, at: float, check: PreflightCheck, now: float
) -> PreflightStatus:
    if asked.answer is not None and asked.answer.findings:
        due = at if _knew_less(asked, check) else at + CHECK_VALID_SECONDS
        return PreflightStatus(phase=PreflightPhase.BLOCKED, wait=_found(asked, now), due=due)
    return _CLEAR if now < at + CHECK_VALID_SECONDS else _OPEN


def _knew_less(asked: PreflightQuery, check: PreflightCheck) -> bool:
    return asked.removes is not None and not set(asked.removes).issuperset(check.removes_pods)


def _asked(asked: PreflightQuery, before: WaitCode | None, now: float) -> PreflightStatus:
    patience = asked.asked_at + ANSWER_SECONDS
    again = asked.asked_at + CHECK_VALID_SECONDS
    out = now < patience
    if asked.answer is not None and asked.answer.findings:
        due = patience if out else again
        return PreflightStatus(
            phase=PreflightPhase.BLOCKED, wait=_found(asked, now), due=due, is_pending=out
        )
    if not out or before is WaitCode.AGENT_SILENT:
        due = patience if out else again
        return PreflightStatus(
            phase=PreflightPhase.BLOCKED, wait=_silent(now), due=due, is_pending=out
        )
    return PreflightStatus(phase=PreflightPhase.PENDING, due=patience, is_pending=True)


def _found(asked: PreflightQuery, now: float) -> Wait:
    findings = asked.answer.findings if asked.answer is not None else ()
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
