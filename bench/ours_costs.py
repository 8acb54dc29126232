"""What our way of upgrading asks of the API server, request by request.

Writes are counted as a stage carries them out, refused ones included. Reads that a stage does not
need are reckoned by the scheduler's own rules: a look at a Node after a conflict, probes before a
grant, and the pods of nodes that are in flight or next. Watches of whole kinds, and the leader's
lease, cost the same whether anything is upgraded or not, and are left out as the incumbent's are.
Must not know what is decided.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from libs.contracts.journal import Verb
from libs.contracts.rollout import KIND
from libs.forecast.stage.field_paths import SCHEDULER
from libs.forecast.stage.recorder import JournalRecorder
from libs.kube.watch.reflector import WATCH_SECONDS
from services.scheduler.pod_cache import LIST_INTERVAL, MAX_WATCHED_NODES
from services.scheduler.resources import POLICIES

CONFLICT, REFUSED = 409, 429
PROOFS: Mapping[str, int] = {"policies": len(POLICIES) + 1}
"""Requests that prove a part of the views to be current, where it is not one."""
PAUSES = 2
"""Writes of an upgrade that pause what is not ours and let it go on, as many as the incumbent's:
assumed of every node, although a node without such operands needs none."""

_WATCH = sum(WATCH_SECONDS) / 2


class RequestCounter(JournalRecorder):
    """Of the scheduler; it counts what others would keep."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = self.writes = self.evictions = self.refusals = 0
        self._finalized: bool | None = None

    def request(
        self,
        *,
        kind: str,
        verb: Verb,
        code: int,
        user: str,
        leaves: Mapping[str, Any] | None = None,
        **_: object,
    ) -> None:
        """One, whoever made it."""
        if user != SCHEDULER:
            return
        self.writes += 1
        self.reads += code == CONFLICT
        if verb is Verb.EVICT:
            self.refusals += code == REFUSED
            self.evictions += code != REFUSED
        if kind == KIND and leaves is not None:
            finalized = "metadata.finalizers" in leaves
            self.writes += self._finalized not in (None, finalized)
            self._finalized = finalized

    def prove(self, parts: Sequence[str]) -> None:
        """These parts of the views are asked for."""
        self.reads += sum(PROOFS.get(part, 1) for part in parts)

    def log(self, at: float, text: str) -> None:
        """Nobody reads it."""

    def entry(self, at: float, boot_id: str, component: str, command: Any, **said: Any) -> None:
        """An agent's journal is a file of its own."""


class PodWatches:
    """At the pods of nodes: on some every change is told, on the others they are listed."""

    def __init__(self) -> None:
        self.reads = 0
        self._watched: dict[str, float] = {}
        self._listed: dict[str, float] = {}

    def follow(self, names: Sequence[str], now: float) -> None:
        """From now on these, the first of them most closely."""
        wanted = set(names)
        for name in [name for name in self._watched if name not in wanted]:
            self.reads += 2 + int((now - self._watched.pop(name)) / _WATCH)
        for name in [name for name in self._listed if name not in wanted]:
            self.reads += 1 + int((now - self._listed.pop(name)) / LIST_INTERVAL)
        for name in names:
            if name not in self._watched and name not in self._listed:
                closely = len(self._watched) < MAX_WATCHED_NODES
                (self._watched if closely else self._listed)[name] = now
