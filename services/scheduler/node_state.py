"""What a leader remembers of each node that is stored nowhere else.

All of it may be lost: a new leader asks, evicts and waits anew.
"""

from collections.abc import Collection
from typing import Final

import msgspec
from msgspec.structs import replace

from libs.contracts.reports import Preflight
from libs.rollout.decision import Wait
from libs.rollout.views.machine import PreflightQuery
from services.scheduler.effects.retries import Retries

FAILURES_UNTIL_REFUSED: Final = 3
"""Consecutive failures of a request after which its node waits with the code REFUSED."""


class PreflightRequest(msgspec.Struct, kw_only=True):
    id: str
    boot_id: str
    query: PreflightQuery

    def record_answer(self, answer: Preflight, *, at: float) -> None:
        """Record the answer, and when the first one came."""
        query = self.query
        is_first = query.answered_at is None or query.answered_at < query.asked_at
        answered_at = at if is_first else query.answered_at
        self.query = replace(query, answered_at=answered_at, answer=answer)


class StepFailure(msgspec.Struct, kw_only=True):
    """Consecutive failures of a step."""

    step: str
    """The reason of the step; another reason starts a new count."""
    since: float
    count: int = 0
    why: str = ""
    """The last error."""


class UnconfirmedWrite(msgspec.Struct, frozen=True):
    """A write of a Node that timed out and may still be carried out."""

    revision: str
    """The write applies to the Node at this revision only."""
    at: float


class PendingEviction(msgspec.Struct, kw_only=True):
    since: float
    by_force: bool = False
    refused: str = ""
    """Why its disruption budget refuses the eviction."""
    failures: int = 0
    """Consecutive requests that failed otherwise."""
    failed: str = ""
    """The error of the last request, once several failed."""


class NodeState(msgspec.Struct, kw_only=True):
    uid: str = ""
    writing: bool = False
    preflight: PreflightRequest | None = None
    evictions: dict[str, PendingEviction] = {}
    deleted_pod_uid: str = ""
    """The driver pod that was deleted last; the cache may not show it yet."""
    waiting: Wait | None = None
    failure: StepFailure | None = None
    unconfirmed: UnconfirmedWrite | None = None
    retries: Retries | None = None
    """Of the node's steps."""

    def record_failure(self, step: str, why: str, *, at: float) -> None:
        if self.failure is None or self.failure.step != step:
            self.failure = StepFailure(step=step, since=at)
        self.failure.count += 1
        self.failure.why = why


class NodeStates:
    """The state of each node by name."""

    def __init__(self) -> None:
        self._states: dict[str, NodeState] = {}
        self.writing_rollouts: set[str] = set()
        self.rollout_errors: dict[str, str] = {}
        """The error of the last attempt to write the Rollout, by pool."""
        self.rollout_retries: dict[str, Retries] = {}
        """Of the writes of the Rollout, by pool."""

    def state_of(self, name: str) -> NodeState:
        """Return the state of a node, to read or to change."""
        state = self._states.get(name)
        if state is None:
            state = self._states[name] = NodeState(evictions={})
        return state

    def of_uid(self, name: str, uid: str) -> NodeState:
        """Return the state of the node with this uid; drop that of an earlier Node."""
        state = self.state_of(name)
        if state.uid != uid:
            state = self._states[name] = NodeState(uid=uid, evictions={}, writing=state.writing)
        return state

    def retain(self, names: Collection[str]) -> None:
        """Drop all other nodes, except those with effects in progress."""
        for name in [name for name in self._states if name not in names]:
            state = self._states[name]
            if not state.writing and not state.evictions:
                del self._states[name]

    def record_answer(self, name: str, answer: Preflight, *, at: float) -> None:
        """Record the answer if it is to the latest preflight request."""
        request = self.state_of(name).preflight
        if request is not None and request.id == answer.check:
            request.record_answer(answer, at=at)
