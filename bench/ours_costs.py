"""Count the requests of our scheduler to the API server.

Writes are counted as a stage carries them out, including refused ones. Reads that a stage does not
need are computed by the rules of the scheduler: a read of a Node after a conflict, probes before a
grant, and the pods of nodes in flight or next. Watches of whole kinds and the leader's lease cost
the same without an upgrade and are left out, as for the incumbent.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from libs.contracts.journal import Verb
from libs.forecast.stage.objects import StageMachine
from libs.forecast.stage.state import SCHEDULER, ObjectRef, Requester, StageState
from libs.kube.reflector import WATCH_SECONDS
from libs.rollout.views.pool import RolloutView
from libs.testing.stage.recorder import After, JournalRecorder
from services.scheduler.pod_cache import LIST_INTERVAL, MAX_WATCHED_NODES
from services.scheduler.resources import POLICIES

CONFLICT, REFUSED = 409, 429
PROOFS: Mapping[str, int] = {"policies": len(POLICIES) + 1}
"""Requests that prove a part of the views to be fresh, where it is not one request."""
PAUSES = 2
"""Writes per upgrade that pause and resume operands that are not ours, as many as the incumbent's.
Assumed for every node, although a node without such operands needs none."""

_WATCH = sum(WATCH_SECONDS) / 2


class RequestCounter(JournalRecorder):
    """Counts the requests of the scheduler."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = self.writes = self.evictions = self.refusals = 0
        self._finalized: bool | None = None

    def request(
        self,
        at: float,
        ref: ObjectRef,
        by: Requester,
        code: int,
        *,
        revision: int,
        after: After,
    ) -> None:
        del at, ref, revision
        if by.user != SCHEDULER:
            return
        self.writes += 1
        self.reads += code == CONFLICT
        if by.verb is Verb.EVICT:
            self.refusals += code == REFUSED
            self.evictions += code != REFUSED
        if isinstance(after, RolloutView):
            self.writes += self._finalized not in (None, after.has_finalizer)
            self._finalized = after.has_finalizer

    def prove(self, parts: Sequence[str]) -> None:
        """Count the probes of these parts of the views."""
        self.reads += sum(PROOFS.get(part, 1) for part in parts)

    def log(self, at: float, text: str) -> None:
        """Ignore log lines."""

    def entry(self, at: float, boot_id: str, component: str, command: Any, **rest: Any) -> None:
        """Ignore entries of agents, which are no requests."""

    def observe_holders(self, state: StageState, machine: StageMachine) -> None:
        """Ignore the processes that have devices open."""

    def observe_pools(self, state: StageState) -> None:
        """Ignore the members of pools."""


class PodWatches:
    """Reads of the pods of nodes: some nodes are watched, the others listed from time to time."""

    def __init__(self) -> None:
        self.reads = 0
        self._watched: dict[str, float] = {}
        self._listed: dict[str, float] = {}

    def follow(self, names: Sequence[str], now: float) -> None:
        """Follow the pods of these nodes, the first ones by watches."""
        followed = set(names)
        for name in [name for name in self._watched if name not in followed]:
            self.reads += 2 + int((now - self._watched.pop(name)) / _WATCH)
        for name in [name for name in self._listed if name not in followed]:
            self.reads += 1 + int((now - self._listed.pop(name)) / LIST_INTERVAL)
        for name in names:
            if name not in self._watched and name not in self._listed:
                can_watch = len(self._watched) < MAX_WATCHED_NODES
                (self._watched if can_watch else self._listed)[name] = now
