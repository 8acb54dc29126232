"""The journal replayed: every Node's life, each change of one, and where in the journal what is.

A place is an index into the revisions: it tells apart also what has no revision of its own, such as
most deletions. What was before the journal is at place -1. Knows no invariant.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from libs.audit.replay.changes import (
    NodeChange,
    PodHistory,
    PolicyChange,
    RolloutWrite,
    rollout_write,
)
from libs.audit.replay.initial_objects import InitialObjects
from libs.audit.replay.nodes import ABSENT, TRACKED_PATHS, NodeHistory, ReplayedNode, state_after
from libs.contracts import rollout
from libs.contracts.journal import Revision, Verb
from libs.contracts.paths import metadata_key, set_path
from libs.policy.kinds import KINDS

OURS: Final = "sluice-"
"""The field managers of all our services begin so."""

_UID: Final = "metadata.uid"
_BEFORE: Final = float("-inf")


class Timeline:
    """Everything that the revisions tell, once through."""

    def __init__(self, revisions: Sequence[Revision], start: Sequence[Mapping[str, Any]]) -> None:
        self.revisions = revisions
        self.changes: list[NodeChange] = []
        self.object_changes: list[PolicyChange | RolloutWrite] = []
        self.nodes: dict[str, NodeHistory] = {}
        self.pods: dict[str, PodHistory] = {}
        self.conflicts: list[tuple[int, Revision, str]] = []
        """Writes to Nodes that met a conflict, and the uid of the Node that they met."""
        self.writes_by_kind: dict[str, tuple[list[int], list[float]]] = {}
        """By kind, and by kind/namespace: the revisions, and when they were written."""
        self._marks: tuple[list[int], list[int]] = ([], [])
        self._times: list[float] = []
        self._uids: dict[str, str] = {}
        self._wholes: dict[tuple[str, str], dict[str, Any]] = {}
        self._begin(InitialObjects(start))
        for place, revision in enumerate(revisions):
            self._read(place, revision)

    # Finding places.

    def position_of(self, revision: int) -> int:
        """Of the last write up to a revision of the API server; before the first one: -1."""
        numbers, places = self._marks
        found = bisect_right(numbers, revision)
        return places[found - 1] if found else -1

    def position_at(self, time: float) -> int:
        """Of the last write up to a moment."""
        return bisect_right(self._times, time) - 1

    def time_of(self, position: int) -> float:
        """When the write at a place was; at the start: before everything."""
        return self._times[position] if position >= 0 else _BEFORE

    def newer_than(self, kind: str, revision: int) -> tuple[int, float] | None:
        """The first write to an object of this kind after a revision, and when it was."""
        numbers, times = self.writes_by_kind.get(kind, ((), ()))
        found = bisect_right(numbers, revision)
        return (numbers[found], times[found]) if found < len(numbers) else None

    @property
    def end_time(self) -> float:
        """When the last write was."""
        return self._times[-1] if self._times else 0.0

    # Reading.

    def _begin(self, start: InitialObjects) -> None:
        for life in start.nodes:
            self.nodes[life.uid] = life
            self._uids[life.name] = life.uid
        for uid, name in start.pods.items():
            self.pods[uid] = PodHistory(name=name)
        for (kind, name), whole in start.others.items():
            self._wholes[kind, name] = whole
            self._keep(-1, _BEFORE, (kind, name), whole)

    def _read(self, place: int, revision: Revision) -> None:
        self._times.append(max(revision.time, self._times[-1] if self._times else revision.time))
        granted = 200 <= revision.code < 300
        if revision.kind == "Node" and revision.code == 409:
            uid = revision.uid or self._uids.get(revision.name, "")
            self.conflicts.append((place, revision, uid))
        if not granted:
            return
        self._mark(place, revision)
        if revision.kind == "Node":
            self._node(place, revision)
        elif revision.kind == "Pod":
            self._pod(revision)
        elif revision.kind in KINDS:
            self._edition(place, revision)

    def _mark(self, place: int, revision: Revision) -> None:
        number = revision.revision
        if not number:
            return
        numbers, places = self._marks
        if not numbers or number > numbers[-1]:
            numbers.append(number)
            places.append(place)
        keys = (revision.kind, f"{revision.kind}/{revision.namespace}")
        for key in keys if revision.namespace else keys[:1]:
            known, times = self.writes_by_kind.setdefault(key, ([], []))
            if not known or number > known[-1]:
                known.append(number)
                times.append(revision.time)

    def _node(self, place: int, revision: Revision) -> None:
        life = self._life(place, revision)
        after = self._after(life, revision)
        labels: dict[str, str | None] = {}
        over: dict[str, str | None] = {}
        ours = revision.manager.startswith(OURS)
        for path, (_, value) in revision.changed.items():
            if _is_status(path):
                continue
            if ours:
                over[path] = life.writers.get(path)
            life.writers[path] = revision.manager
            if (place_of_it := metadata_key(path)) and place_of_it[0] == "labels":
                labels[place_of_it[1]] = value
        if after is not life.latest or ours or labels:
            self._become(place, revision, life, after, labels=labels, over=over)

    def _become(
        self, place: int, revision: Revision, life: NodeHistory, after: ReplayedNode, **paths: Any
    ) -> None:
        self.changes.append(NodeChange.of(place, revision, life, after, **paths))
        if after is not life.latest:
            life.append(place, after)

    def _after(self, life: NodeHistory, revision: Revision) -> ReplayedNode:
        before = life.latest
        if _is_gone(revision):
            if self._uids.get(life.name) == life.uid:
                del self._uids[life.name]
            return ABSENT
        told = TRACKED_PATHS & revision.changed.keys()
        known = before if before.exists else ReplayedNode()
        if not told:
            return known
        changed = {path: revision.changed[path][1] for path in told}
        return state_after(known, life.uid, changed)

    def _life(self, place: int, revision: Revision) -> NodeHistory:
        uid = revision.uid or self._uids.get(revision.name, revision.name)
        life = self.nodes.get(uid)
        if life is None:
            if former := self._uids.get(revision.name):
                # Its end was not written down.
                self._become(place, revision, self.nodes[former], ABSENT)
            whole = revision.verb == Verb.CREATE or revision.code == 201
            life = self.nodes[uid] = NodeHistory(uid, revision.name, whole=whole)
            self._uids[revision.name] = uid
        return life

    def _pod(self, revision: Revision) -> None:
        pod = self.pods.setdefault(revision.uid, PodHistory(name=revision.name))
        if _is_gone(revision) and pod.deletion is None:
            pod.deletion = revision

    def _edition(self, place: int, revision: Revision) -> None:
        key, changed = (revision.kind, revision.name), revision.changed
        if not changed or (revision.kind != rollout.KIND and all(map(_is_status, changed))):
            return
        whole = None
        if _is_gone(revision):
            self._wholes.pop(key, None)
        else:
            whole = self._wholes.setdefault(key, {"metadata": {"name": revision.name}})
            for path, (_, value) in changed.items():
                set_path(whole, path, value)
        self._keep(place, revision.time, key, whole, revision)

    def _keep(
        self,
        place: int,
        time: float,
        key: tuple[str, str],
        whole: Mapping[str, Any] | None,
        revision: Revision | None = None,
    ) -> None:
        kind, name = key
        if kind == rollout.KIND:
            self.object_changes.append(rollout_write(place, time, name, whole or {}, revision))
            return
        # A copy, which later changes do not reach.
        copy = None if whole is None else msgspec.json.decode(msgspec.json.encode(whole))
        self.object_changes.append(
            PolicyChange(position=place, time=time, kind=kind, name=name, whole=copy)
        )


def _is_status(path: str) -> bool:
    return path.startswith("status.")


def _is_gone(revision: Revision) -> bool:
    """Whether the object is: then its uid went too."""
    before, after = revision.changed.get(_UID, (None, None))
    return before is not None and after is None
