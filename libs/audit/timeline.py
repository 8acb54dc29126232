"""The replayed journal: the history of every Node, each change, and lookups by revision and time.

A position is an index into the revisions. Unlike a revision number, it exists for every write: most
deletions have no revision of their own. The state before the journal is at position -1.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from libs.audit.nodes import (
    ABSENT,
    TRACKED_PATHS,
    NodeHistory,
    ReplayedNode,
    Series,
    as_map,
    initial_history,
    state_after,
)
from libs.audit.object_writes import (
    PolicyChange,
    RolloutWrite,
    rollout_write,
    shown_entries,
)
from libs.audit.pods import PodHistory, initial_pod, is_deletion
from libs.contracts import rollout
from libs.contracts.journal import Revision, Verb
from libs.contracts.node import MANAGER, NodeLease
from libs.contracts.paths import UID, metadata_key, set_path
from libs.policy.kinds import KINDS

OURS: Final = "sluice-"
"""The prefix of the field managers of our services."""

_POD_KINDS: Final = frozenset({"Pod", "Binding"})
"""A binding sets the node of its Pod."""

_BEFORE: Final = float("-inf")

State = TypeVar("State")


class NodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """A successful write to a Node that changed its replayed state or labels, or was ours."""

    position: int
    revision: Revision
    node: NodeHistory
    before: ReplayedNode
    after: ReplayedNode
    labels: Mapping[str, str | None] = {}
    """The changed labels with their new values."""
    previous_writers: Mapping[str, str | None] = {}
    """Of a write of ours: the last writer of each path before it; None where it is unknown."""
    by_scheduler: bool
    """Whether the scheduler is the writer."""
    lease_ended: NodeLease | None
    """The lease of an upgrade that the write ended."""
    lease_taken: NodeLease | None
    """The lease of an upgrade that began with the write."""
    label_moved: bool
    """Whether the driver label changed."""
    new_state: str | None
    """The state, where it changed."""
    record_lost: bool
    """Whether another writer removed the record or made it malformed."""

    @classmethod
    def of(
        cls, position: int, revision: Revision, node: NodeHistory, after: ReplayedNode, **paths: Any
    ) -> "NodeChange":
        before, ours = node.latest, revision.manager == MANAGER
        lost = before.record is not None and after.record is None and after.exists
        return cls(
            position=position,
            revision=revision,
            node=node,
            before=before,
            after=after,
            by_scheduler=ours,
            lease_ended=before.upgrade if before.upgrade != after.lease else None,
            lease_taken=after.upgrade if before.upgrade is None else None,
            label_moved=before.driver != after.driver,
            new_state=after.state if after.state != before.state else None,
            record_lost=lost and not ours,
            **paths,
        )

    @property
    def uncordoned(self) -> bool:
        return self.before.cordoned and not self.after.cordoned


class Timeline:
    """The history of all objects in a journal."""

    def __init__(self, revisions: Sequence[Revision], start: Sequence[Mapping[str, Any]]) -> None:
        self.revisions = revisions
        self.changes: list[NodeChange] = []
        self.object_changes: list[PolicyChange | RolloutWrite] = []
        self.nodes: dict[str, NodeHistory] = {}
        self.pods: dict[str, PodHistory] = {}
        self.conflicts: list[tuple[int, Revision, str]] = []
        """Writes to Nodes that met a conflict, with position and node uid."""
        self._times: list[float] = []
        self._positions = Series(-1)
        """The position of each revision."""
        self._write_times: dict[str, Series[float]] = defaultdict(lambda: Series(0.0))
        """By kind, and by kind/namespace: the time of each revision."""
        self._uids: dict[str, str] = {}
        """Uids of the present Nodes by name."""
        self._manifests: dict[tuple[str, str], dict[str, Any]] = {}
        """Rollouts, policies and strategies by kind and name."""
        self._shown: dict[str, frozenset[str]] = {}
        """By name of a Rollout that is older than the journal (`RolloutWrite.shown`)."""
        self._replay_start(start)
        for position, revision in enumerate(revisions):
            self._replay(position, revision)

    def position_of(self, revision: int) -> int:
        """Return the position of the last write up to a revision; -1 before the first."""
        return self._positions.at(revision)

    def position_at(self, time: float) -> int:
        """Return the position of the last write up to a time."""
        return bisect_right(self._times, time) - 1

    def position_before(self, position: int, seconds: float) -> int:
        """Return the position of the last write up to some seconds before another."""
        return self.position_at(self.time_of(position) - seconds)

    def time_of(self, position: int) -> float:
        """Return the time of a write; minus infinity for the start of the journal."""
        return self._times[position] if position >= 0 else _BEFORE

    def newer_than(self, kind: str, revision: int) -> tuple[int, float] | None:
        """Return revision and time of the first write to a kind after a revision."""
        return self._write_times[kind].first_after(revision)

    @property
    def end_time(self) -> float:
        return self._times[-1] if self._times else 0.0

    def changes_with(
        self, at_start: Callable[[NodeHistory], State]
    ) -> Iterator[tuple[NodeChange, State]]:
        """Return each change of a Node with the state that a check keeps of that Node."""
        states: dict[str, State] = {}
        for change in self.changes:
            if change.node.uid not in states:
                states[change.node.uid] = at_start(change.node)
            yield change, states[change.node.uid]

    def _replay_start(self, start: Sequence[Mapping[str, Any]]) -> None:
        for manifest in start:
            kind, metadata = manifest.get("kind", ""), as_map(manifest.get("metadata"))
            name, uid = metadata.get("name", ""), metadata.get("uid", "")
            if kind == "Node":
                self.nodes[uid] = initial_history(manifest, uid, name)
                self._uids[name] = uid
            elif kind == "Pod":
                self.pods[uid] = initial_pod(manifest, name)
            elif kind in KINDS:
                copy = self._manifests[kind, name] = _deep_copy(manifest)
                self._append_object_change(-1, _BEFORE, (kind, name), copy, None)

    def _replay(self, position: int, revision: Revision) -> None:
        self._times.append(max(revision.time, self._times[-1] if self._times else revision.time))
        if revision.kind == "Node" and revision.code == 409:
            uid = revision.uid or self._uids.get(revision.name, "")
            self.conflicts.append((position, revision, uid))
        if not 200 <= revision.code < 300:
            return
        self._index(position, revision)
        if revision.kind == "Node":
            self._replay_node(position, revision)
        elif revision.kind in _POD_KINDS and revision.uid:
            pod = self.pods.setdefault(revision.uid, PodHistory(revision.name))
            pod.observe(position, revision)
        elif revision.kind in KINDS:
            self._replay_object(position, revision)

    def _index(self, position: int, revision: Revision) -> None:
        number, kind = revision.revision, revision.kind
        if not number:
            return
        self._positions.append_newer(number, position)
        for key in (kind, f"{kind}/{revision.namespace}")[: 2 if revision.namespace else 1]:
            self._write_times[key].append_newer(number, revision.time)

    def _replay_node(self, position: int, revision: Revision) -> None:
        history = self._node_history(position, revision)
        after = self._state_after(history, revision)
        labels: dict[str, str | None] = {}
        previous_writers: dict[str, str | None] = {}
        ours = revision.manager.startswith(OURS)
        for path, (_, value) in revision.changed.items():
            if _is_status(path):
                continue
            if ours:
                previous_writers[path] = history.last_writers.get(path)
            history.last_writers[path] = revision.manager
            if (entry := metadata_key(path)) and entry[0] == "labels":
                labels[entry[1]] = value
        if after is not history.latest or ours or labels:
            paths = {"labels": labels, "previous_writers": previous_writers}
            self._append_node_change(position, revision, history, after, **paths)

    def _append_node_change(
        self,
        position: int,
        revision: Revision,
        history: NodeHistory,
        after: ReplayedNode,
        **paths: Any,
    ) -> None:
        self.changes.append(NodeChange.of(position, revision, history, after, **paths))
        if after is not history.latest:
            history.append(position, after)

    def _state_after(self, history: NodeHistory, revision: Revision) -> ReplayedNode:
        if is_deletion(revision):
            if self._uids.get(history.name) == history.uid:
                del self._uids[history.name]
            return ABSENT
        before = history.latest if history.latest.exists else ReplayedNode()
        changed = {
            path: revision.changed[path][1] for path in TRACKED_PATHS & revision.changed.keys()
        }
        return state_after(before, history.uid, changed) if changed else before

    def _node_history(self, position: int, revision: Revision) -> NodeHistory:
        uid = revision.uid or self._uids.get(revision.name, revision.name)
        history = self.nodes.get(uid)
        if history is None:
            if former := self._uids.get(revision.name):
                # The deletion of the former Node of this name is missing from the journal.
                self._append_node_change(position, revision, self.nodes[former], ABSENT)
            created = revision.verb == Verb.CREATE or revision.code == 201
            history = self.nodes[uid] = NodeHistory(uid, revision.name, is_complete=created)
            self._uids[revision.name] = uid
        return history

    def _replay_object(self, position: int, revision: Revision) -> None:
        key, changed = (revision.kind, revision.name), revision.changed
        if not changed or (revision.kind != rollout.KIND and all(map(_is_status, changed))):
            return
        manifest = None
        if revision.kind == rollout.KIND:
            self._show_entries(revision, is_known=key in self._manifests)
        if is_deletion(revision):
            self._manifests.pop(key, None)
        else:
            manifest = self._manifests.setdefault(key, {"metadata": {"name": revision.name}})
            for path, (_, value) in changed.items():
                set_path(manifest, path, value)
        self._append_object_change(position, revision.time, key, manifest, revision)

    def _show_entries(self, revision: Revision, *, is_known: bool) -> None:
        name = revision.name
        if UID in revision.changed:  # created or deleted: all of it is shown
            self._shown.pop(name, None)
        elif not is_known or name in self._shown:
            self._shown[name] = self._shown.get(name, frozenset()) | {*shown_entries(revision)}

    def _append_object_change(
        self,
        position: int,
        time: float,
        key: tuple[str, str],
        manifest: Mapping[str, Any] | None,
        revision: Revision | None,
    ) -> None:
        kind, name = key
        if kind == rollout.KIND:
            shown = self._shown.get(name)
            write = rollout_write(position, time, name, manifest or {}, revision, shown=shown)
            self.object_changes.append(write)
            return
        # A copy, because later writes change the manifest in place.
        copy = None if manifest is None else _deep_copy(manifest)
        self.object_changes.append(
            PolicyChange(position=position, time=time, kind=kind, name=name, manifest=copy)
        )


def _deep_copy(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(manifest))


def _is_status(path: str) -> bool:
    return path.startswith("status.")
