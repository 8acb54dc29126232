"""The preflight check before a cordon: could this driver be brought up on the node?

docs/states.md#d-9. The check names the pods that leave, so it is asked only when the pods of the
node are listed: our own agents hold the devices too. An answer is valid for a minute, in its boot,
for its label and artefact. If more pods are known to leave by the time of the answer, what it found
is asked again before it counts, once. No answer within ten seconds counts as a failed check.

With the check the driver's image is requested (docs/states.md#prefetch): a node that has to be
drained starts only when the image is on it.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

import msgspec

from libs.contracts.commands import CHECK_VALID_SECONDS, PreflightCheck
from libs.contracts.reports import NO_ACTION_NEEDED, Finding
from libs.contracts.waits import ITSELF, RESOLVED_BY, WaitCode
from libs.rollout.decision import AskPreflight, Candidate, Wait
from libs.rollout.views.machine import PreflightQuery
from libs.rollout.views.node import NodeView

ANSWER_SECONDS: Final = 10.0
"""For the agent's answer, and before that for the list of the node's pods."""

PODS_UNLISTED: Final = "waiting for the list of the node's pods, which the preflight check needs"

PULL_SECONDS: Final = 600.0
"""How long a node keeps its turn while its image is pulled without an error."""

_IMAGE_RESOLVED_BY = (
    "the administrator of the registry, by making the image available; the author of the policy, by"
    " naming another image or pull secret; an administrator, by the request without-preflight"
)


class PreflightPhase(Enum):
    CLEAR = auto()
    """The check found no obstacle, or no check is needed."""
    NEEDED = auto()
    """The check has to be requested."""
    PENDING = auto()
    """The check was requested and has time to be answered."""
    BLOCKED = auto()
    """A finding, or no answer: other candidates may start meanwhile."""


class PreflightStatus(msgspec.Struct, frozen=True, kw_only=True):
    phase: PreflightPhase
    wait: Wait | None = None
    due: float | None = None
    """When time alone changes the status; if blocked, when to repeat the check."""
    is_pending: bool = False
    """A request is not answered yet."""
    detail: str = ""
    """What a pending check waits for, unless it is the agent's answer."""


_CLEAR: Final = PreflightStatus(phase=PreflightPhase.CLEAR)
_REQUIRED: Final = PreflightStatus(phase=PreflightPhase.NEEDED)


def preflight_status(
    node: NodeView, candidate: Candidate, before: WaitCode | None, now: float
) -> PreflightStatus:
    """Return the status; `before` is the node's wait code at the last decision."""
    check, query = candidate.check, node.preflight
    if check is None:
        return _CLEAR
    if query is None or (query.label, query.artefact) != (check.label, check.artefact_digest):
        return _REQUIRED
    if query.awaits_pods:
        return _list_status(query, now) if node.pods is None else _REQUIRED
    if query.answered_at is not None and query.answered_at >= query.asked_at:
        status = _answered(query, query.answered_at, check, now)
        if status.phase is PreflightPhase.BLOCKED:
            return status
        return _image_status(node, candidate, query, now) or status
    return _unanswered(query, before, now)


def open_query(action: AskPreflight, before: PreflightQuery | None, now: float) -> PreflightQuery:
    """Return the query that the action opens after the one before, of the same boot."""
    check = action.check
    asked = check.label, check.artefact_digest
    same = before if before is not None and (before.label, before.artefact) == asked else None
    kept = same if action.keeps_findings else None
    return PreflightQuery(
        label=check.label,
        asked_at=now,
        artefact=check.artefact_digest,
        awaits_pods=action.awaits_pods,
        removes=check.removes_pods,
        repeated=same is not None and _has_findings(same),
        answered_at=None if kept is None else kept.answered_at,
        answer=None if kept is None else kept.answer,
    )


def _has_findings(query: PreflightQuery) -> bool:
    return query.answer is not None and bool(query.answer.findings)


def _list_status(query: PreflightQuery, now: float) -> PreflightStatus:
    """Return the status while the pods of the node are not listed: it keeps its turn for a while.

    The check is asked as soon as they are, however long that takes.
    """
    due = query.asked_at + ANSWER_SECONDS
    if now < due:
        return PreflightStatus(phase=PreflightPhase.PENDING, due=due, detail=PODS_UNLISTED)
    unlisted = Wait(
        code=WaitCode.PREFLIGHT,
        detail=f"{PODS_UNLISTED}, for more than {ANSWER_SECONDS:g} s",
        since=now,
        who=RESOLVED_BY[WaitCode.STALE],
    )
    return PreflightStatus(phase=PreflightPhase.BLOCKED, wait=unlisted)


def _answered(
    query: PreflightQuery, answered_at: float, check: PreflightCheck, now: float
) -> PreflightStatus:
    if _has_findings(query):
        due = answered_at + CHECK_VALID_SECONDS
        if _found_leaving_pods(query, check):
            if not query.repeated:
                return _REQUIRED
            due = answered_at
        return PreflightStatus(
            phase=PreflightPhase.BLOCKED, wait=_finding_wait(query, now), due=due
        )
    return _CLEAR if now < answered_at + CHECK_VALID_SECONDS else _REQUIRED


def _image_status(
    node: NodeView, candidate: Candidate, query: PreflightQuery, now: float
) -> PreflightStatus | None:
    """Return why the image is not on the node yet; None: it is, or none is needed.

    The node keeps its turn while the image is being pulled, and loses it on an error. A check that
    brings no pull is repeated: the driver service may have missed it.
    """
    image, pull = candidate.image, node.image_pull
    if not image:
        return None
    repeat_at, limit = query.asked_at + CHECK_VALID_SECONDS, PULL_SECONDS
    if pull is None or pull.label != candidate.label:
        if _is_of_earlier_attempt(node, query, now):
            return _REQUIRED
        limit = CHECK_VALID_SECONDS
        detail = f"waiting for the driver service to bring the driver image {image} to the node"
    elif pull.present:
        return None
    elif pull.trouble:
        what = (
            "the image of the driver that the node would go back to"
            if pull.is_way_back
            else f"the driver image {image}"
        )
        detail = f"{what} cannot be brought to the node: {pull.trouble}"
        return _image_missing(detail, now, repeat_at)
    else:
        detail = f"the driver image {image} is being pulled to the node"
    due = query.asked_at + limit
    if now < due:
        return PreflightStatus(phase=PreflightPhase.PENDING, due=due, detail=detail)
    return _image_missing(f"{detail}, for more than {limit:g} s", now, repeat_at)


def _is_of_earlier_attempt(node: NodeView, query: PreflightQuery, now: float) -> bool:
    """Report whether the check was asked before the node entered its state.

    A state that begins in the future was written by a leader with another clock: it says nothing.
    """
    record = node.current_record
    return record is not None and query.asked_at < record.since <= now


def _image_missing(detail: str, now: float, repeat_at: float) -> PreflightStatus:
    missing = Wait(code=WaitCode.PREFLIGHT, detail=detail, since=now, who=_IMAGE_RESOLVED_BY)
    return PreflightStatus(phase=PreflightPhase.BLOCKED, wait=missing, due=repeat_at)


def _found_leaving_pods(query: PreflightQuery, check: PreflightCheck) -> bool:
    return query.removes is not None and not set(query.removes).issuperset(check.removes_pods)


def _unanswered(query: PreflightQuery, before: WaitCode | None, now: float) -> PreflightStatus:
    answer_due = query.asked_at + ANSWER_SECONDS
    repeat_at = query.asked_at + CHECK_VALID_SECONDS
    is_pending = now < answer_due
    if _has_findings(query):
        due = answer_due if is_pending else repeat_at
        return PreflightStatus(
            phase=PreflightPhase.BLOCKED,
            wait=_finding_wait(query, now),
            due=due,
            is_pending=is_pending,
        )
    if not is_pending or before is WaitCode.AGENT_SILENT:
        due = answer_due if is_pending else repeat_at
        return PreflightStatus(
            phase=PreflightPhase.BLOCKED, wait=_silence_wait(now), due=due, is_pending=is_pending
        )
    return PreflightStatus(phase=PreflightPhase.PENDING, due=answer_due, is_pending=True)


def _finding_wait(query: PreflightQuery, now: float) -> Wait:
    findings = query.answer.findings if query.answer is not None else ()
    return Wait(
        code=WaitCode.PREFLIGHT,
        detail=f"preflight check failed: {'; '.join(finding.message for finding in findings)}",
        since=now,
        who=_resolved_by(findings),
    )


def _resolved_by(findings: Sequence[Finding]) -> str:
    for_people = [each for each in findings if not each.remedy.startswith(NO_ACTION_NEEDED)]
    if not for_people:
        return ITSELF
    remedies = dict.fromkeys(f"{each.code}: {each.remedy}" for each in for_people if each.remedy)
    if not remedies:
        return RESOLVED_BY[WaitCode.PREFLIGHT]
    remedy = "; ".join(remedies)
    return f"an administrator, by the remedy ({remedy}) or by the request without-preflight"


def _silence_wait(now: float) -> Wait:
    return Wait(
        code=WaitCode.AGENT_SILENT,
        detail=f"the driver agent did not answer the preflight check within {ANSWER_SECONDS:g} s",
        since=now,
        who="an administrator of the driver agent",
    )


def is_image_unrequested(node: NodeView, candidate: Candidate) -> bool:
    """Whether the node needs an image that was not requested yet."""
    query = node.preflight
    is_requested = query is not None and not query.awaits_pods and query.label == candidate.label
    return bool(candidate.image) and not is_requested
