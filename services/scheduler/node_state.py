"""What the scheduler keeps about nodes by itself, while it leads: no other process knows it.

All of it can be lost: then it is asked, evicted or waited for anew.
"""

from collections.abc import Collection

import msgspec

from libs.contracts.reports import Preflight
from libs.rollout.decision import Wait
from libs.rollout.views.machine import PreflightQuery
from libs.runtime.backoff import Backoff


class PreflightRequest(msgspec.Struct, kw_only=True):
    """A preflight that was asked for."""

    id: str
    boot_id: str
    label: str
    removes: tuple[str, ...] = ()
    at: float
    answered: float | None = None
    answer: Preflight | None = None

    def view(self) -> PreflightQuery:
        """As the engine sees it."""
        return PreflightQuery(
            label=self.label,
            asked_at=self.at,
            removes=self.removes,
            answered_at=self.answered,
            answer=self.answer,
        )


class StepFailure(msgspec.Struct, kw_only=True):
    """A step that fails again and again."""

    step: str
    """Its reason: a step for another one is counted anew."""
    since: float
    count: int = 0
    why: str = ""
    """The last answer."""


class UnconfirmedWrite(msgspec.Struct, frozen=True):
    """A write of a Node that may yet be carried out, for all we know."""

    revision: str
    """As which it must find the Node."""
    at: float
    """When we gave up waiting."""


class PendingEviction(msgspec.Struct, kw_only=True):
    """A pod that is being evicted."""

    since: float
    by_force: bool = False
    refused: str = ""


class NodeState(msgspec.Struct, kw_only=True):
    """About one node."""

    uid: str = ""
    writing: bool = False
    preflight: PreflightRequest | None = None
    evictions: dict[str, PendingEviction] = {}
    waiting: Wait | None = None
    failure: StepFailure | None = None
    unconfirmed: UnconfirmedWrite | None = None
    backoff: Backoff | None = None
    """How long it is left alone after the next effect that fails."""

    def record_failure(self, step: str, why: str, *, at: float) -> None:
        """The step for this was refused, or not answered."""
        if self.failure is None or self.failure.step != step:
            self.failure = StepFailure(step=step, since=at)
        self.failure.count += 1
        self.failure.why = why


class NodeStates:
    """About all of them, by name."""

    def __init__(self) -> None:
        self._known: dict[str, NodeState] = {}
        self.writing_rollouts: set[str] = set()
        self.rollout_errors: dict[str, str] = {}
        """By pool: why its Rollout could not be written when that was last tried."""

    def of(self, name: str) -> NodeState:
        """What is kept about a node; it can be changed."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = NodeState(evictions={})
        return known

    def of_uid(self, name: str, uid: str) -> NodeState:
        """The same, of the Node of that uid: what was kept of an earlier one is void."""
        known = self.of(name)
        if known.uid != uid:
            known = self._known[name] = NodeState(uid=uid, evictions={}, writing=known.writing)
        return known

    def retain(self, names: Collection[str]) -> None:
        """There are no other nodes; of one that is still acted on, all is kept meanwhile."""
        for name in [name for name in self._known if name not in names]:
            known = self._known[name]
            if not known.writing and not known.evictions:
                del self._known[name]

    def record_answer(self, name: str, answer: Preflight, *, at: float) -> None:
        """The answer to a question, if it is the one that counts."""
        asked = self.of(name).preflight
        if asked is not None and asked.id == answer.check and asked.answer is not answer:
            if asked.answered is None or asked.answered < asked.at:
                asked.answered = at
            asked.answer = answer
