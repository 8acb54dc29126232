"""Where the question to a candidate's driver agent stands: could this driver be brought up here?

An answer counts for a minute, in its boot, for the label that was asked about; what it found only
as long as no more pods are known to leave. No answer in ten seconds is one too. Must not know how
many may start.
"""

from enum import Enum, auto
from typing import Final

import msgspec

from libs.contracts.commands import CHECK_VALID_SECONDS, PreflightCheck
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Candidate, Wait
from libs.rollout.views.machine import Checked
from libs.rollout.views.node import NodeView

ANSWER_SECONDS: Final = 10.0


class Stage(Enum):
    """What is known."""

    CLEAR = auto()
    """Nothing stands in the way, or nothing had to be asked."""
    OPEN = auto()
    """It has to be asked."""
    ASKED = auto()
    """It was asked, and has time to answer."""
    BLOCKED = auto()
    """Something stands in the way, or nobody answers: the others go on."""


class Inquiry(msgspec.Struct, frozen=True, kw_only=True):
    """Where it stands, and what the node waits for by it."""

    stage: Stage
    wait: Wait | None = None
    due: float | None = None
    """When it stands otherwise by time alone: of one that is blocked, when to ask again."""
    asking: bool = False
    """A question is out."""


_CLEAR: Final = Inquiry(stage=Stage.CLEAR)
_OPEN: Final = Inquiry(stage=Stage.OPEN)


def inquiry(node: NodeView, candidate: Candidate, before: WaitCode | None, now: float) -> Inquiry:
    """Where it stands; `before` is what the node waited for at the last decision."""
    check, asked = candidate.check, node.preflight
    if check is None:
        return _CLEAR
    if asked is None or asked.label != check.label:
        return _OPEN
    if asked.answered is not None and asked.answered >= asked.asked:
        return _answered(asked, asked.answered, check, now)
    return _asked(asked, before, now)


def _answered(asked: Checked, at: float, check: PreflightCheck, now: float) -> Inquiry:
    if asked.answer is not None and asked.answer.findings:
        due = at if _knew_less(asked, check) else at + CHECK_VALID_SECONDS
        return Inquiry(stage=Stage.BLOCKED, wait=_found(asked, now), due=due)
    return _CLEAR if now < at + CHECK_VALID_SECONDS else _OPEN


def _knew_less(asked: Checked, check: PreflightCheck) -> bool:
    """Whether pods may have been found of which it is known only now that they will leave."""
    return asked.removes is not None and not set(asked.removes).issuperset(check.removes_pods)


def _asked(asked: Checked, before: WaitCode | None, now: float) -> Inquiry:
    """Who gave trouble before keeps no place while it is asked again."""
    patience = asked.asked + ANSWER_SECONDS
    again = asked.asked + CHECK_VALID_SECONDS
    out = now < patience
    if asked.answer is not None and asked.answer.findings:
        due = patience if out else again
        return Inquiry(stage=Stage.BLOCKED, wait=_found(asked, now), due=due, asking=out)
    if not out or before is WaitCode.AGENT_SILENT:
        due = patience if out else again
        return Inquiry(stage=Stage.BLOCKED, wait=_silent(now), due=due, asking=out)
    return Inquiry(stage=Stage.ASKED, due=patience, asking=True)


def _found(asked: Checked, now: float) -> Wait:
    findings = asked.answer.findings if asked.answer is not None else ()
    return Wait(
        code=WaitCode.PREFLIGHT,
        detail="; ".join(finding.message for finding in findings),
        since=now,
        who="; ".join(f"{finding.code}: {finding.remedy}" for finding in findings if finding.remedy)
        or "whoever removes what was found; the request without-preflight",
    )


def _silent(now: float) -> Wait:
    return Wait(
        code=WaitCode.AGENT_SILENT,
        detail=f"the driver agent did not answer the preflight within {ANSWER_SECONDS:g} s",
        since=now,
        who="whoever looks after the driver agent's pod",
    )
