"""What is stored: the objects of every kind as bytes, one revision counter, what changed lately.

Knows nothing of what a request is, of owners, or of what an object means. A write reads, decides
and commits without giving anybody else a turn.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.objects.encoding import encoded, interned, ordered, renumbered

HISTORY_BYTES = 40 * 1024**2
"""What the past of one kind may take, however few its changes are."""

Key = tuple[str, str]
"""Group and plural: all versions of a kind share their objects."""


class StoredObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One object as it was at one revision."""

    namespace: str
    name: str
    uid: str
    revision: int
    raw: bytes
    labels: dict[str, str]
    fields: tuple[str, ...]
    """Values of what its kind can be selected by, in the kind's order; none of a custom kind, whose
    versions and their fields come and go.
    """

    @property
    def key(self) -> str:
        """Its place among the others of its kind."""
        return f"{self.namespace}/{self.name}"


class StoredChange(msgspec.Struct, frozen=True, kw_only=True):
    """What one revision did to one object."""

    revision: int
    before: StoredObject | None
    after: StoredObject | None

    @property
    def key(self) -> str:
        """Of the object."""
        return (self.after or self.before).key  # pyright: ignore[reportOptionalMemberAccess]

    def deleted_object(self) -> bytes:
        """The object for those to whom it is deleted: as it last was, at this revision."""
        if self.before is None:
            raise LookupError("a new object is gone for nobody")
        return renumbered(self.before.raw, self.before.revision, self.revision)


class KindStore:
    """All objects of a kind, and how they came to be so."""

    def __init__(self, *, history_bytes: int) -> None:
        self._objects: dict[str, StoredObject] = {}
        self._keys: list[str] = []
        self._past: deque[StoredChange] = deque()
        self._remembers = history_bytes
        self._bytes = 0
        self.oldest = 0
        """A watch may go on from here, and a list be as of this revision; not before it."""

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, namespace: str, name: str) -> StoredObject | None:
        """The object as it is."""
        return self._objects.get(f"{namespace}/{name}")

    def select(self, namespace: str, *, after: str = "") -> Iterator[StoredObject]:
        """In order of their keys; all namespaces where none is named."""
        for key in self._range(self._keys, namespace, after):
            yield self._objects[key]

    def as_of(self, revision: int, namespace: str, *, after: str = "") -> Iterator[StoredObject]:
        """As it was at a revision that is still remembered."""
        changed: dict[str, StoredObject | None] = {}
        for change in reversed(self._past):
            if change.revision <= revision:
                break
            changed[change.key] = change.before
        keys = self._keys
        if changed:
            keys = sorted(
                {*self._keys, *(key for key, was in changed.items() if was is not None)}
                - {key for key, was in changed.items() if was is None}
            )
        for key in self._range(keys, namespace, after):
            stored = changed.get(key) or self._objects[key]
            yield stored

    def since(self, revision: int) -> list[StoredChange]:
        """What happened after it."""
        later: list[StoredChange] = []
        for change in reversed(self._past):
            if change.revision <= revision:
                break
            later.append(change)
        later.reverse()
        return later

    def revision_before(self, revisions: int, *, now: int) -> int:
        """The revision before that many changes, or the oldest that is known."""
        if revisions <= 0:
            return now
        if revisions < len(self._past):
            return self._past[-revisions - 1].revision
        return self.oldest

    def put(self, change: StoredChange) -> None:
        """Make it so."""
        key = change.key
        if change.after is None:
            del self._objects[key]
            del self._keys[bisect_left(self._keys, key)]
        else:
            if key not in self._objects:
                insort(self._keys, key)
            self._objects[key] = change.after
        self._past.append(change)
        self._bytes += _weight(change)
        while len(self._past) > self._remembers or self._bytes > HISTORY_BYTES:
            first = self._past.popleft()
            self._bytes -= _weight(first)
            self.oldest = first.revision

    def forget(self, revision: int) -> None:
        """Only what comes after this revision will be known."""
        self._past.clear()
        self._bytes = 0
        self.oldest = revision

    def _range(self, keys: list[str], namespace: str, after: str) -> Iterator[str]:
        first = f"{namespace}/" if namespace else ""
        start = bisect_left(keys, max(first, after))
        # A copy, so that whoever walks may write.
        end = bisect_left(keys, f"{namespace}0") if namespace else len(keys)
        return iter(keys[start:end])


def _weight(change: StoredChange) -> int:
    """What only the past holds: the present has the newer object anyway."""
    return len(change.before.raw) if change.before is not None else 0


class Store:
    """All kinds' shelves; each write takes the next revision."""

    def __init__(
        self, *, history_bytes: int, written: Callable[[ResourceKind, StoredChange], None]
    ) -> None:
        self._shelves: dict[Key, KindStore] = {}
        self._remembers = history_bytes
        self._written = written
        self.revision = 1

    def of_kind(self, kind: ResourceKind) -> KindStore:
        """Where a kind's objects are."""
        return self._shelf((kind.group, kind.plural))

    def _shelf(self, key: Key) -> KindStore:
        shelf = self._shelves.get(key)
        if shelf is None:
            shelf = self._shelves[key] = KindStore(history_bytes=self._remembers)
        return shelf

    def namespace_store(self) -> KindStore:
        """Into which everything namespaced must go."""
        return self._shelf(("", "namespaces"))

    def account_store(self) -> KindStore:
        """As which pods speak."""
        return self._shelf(("", "serviceaccounts"))

    def put(
        self, kind: ResourceKind, thing: Mapping[str, Any], *, before: StoredObject | None
    ) -> StoredObject:
        """Write an object down as it is from now on."""
        revision = self._next()
        metadata: dict[str, Any] = {**thing["metadata"], "resourceVersion": str(revision)}
        whole = ordered({**thing, "metadata": metadata})
        labels: dict[str, str] = metadata.get("labels") or {}
        kept = before.labels if before is not None and before.labels == labels else None
        stored = StoredObject(
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            uid=metadata["uid"],
            revision=revision,
            raw=encoded(whole),
            labels=interned(labels) if kept is None else kept,
            fields=() if kind.custom else tuple(field(whole, path) for path in kind.selectable),
        )
        self._commit(kind, StoredChange(revision=revision, before=before, after=stored))
        return stored

    def remove(self, kind: ResourceKind, before: StoredObject) -> StoredChange:
        """Take an object away."""
        change = StoredChange(revision=self._next(), before=before, after=None)
        self._commit(kind, change)
        return change

    def forget(self) -> None:
        """Nothing of the past is known from now on."""
        for shelf in self._shelves.values():
            shelf.forget(self.revision)

    def _next(self) -> int:
        self.revision += 1
        return self.revision

    def _commit(self, kind: ResourceKind, change: StoredChange) -> None:
        self.of_kind(kind).put(change)
        self._written(kind, change)


def field(thing: Mapping[str, Any], path: str) -> str:
    """What a fieldSelector sees there."""
    value: Any = thing
    for name in _STANDS_FOR.get(path, path).split("."):
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return _ABSENT.get(path, "") if value is None or isinstance(value, dict | list) else str(value)


_STANDS_FOR = {"source": "source.component"}
_ABSENT = {
    "spec.hostNetwork": "false",
    "spec.unschedulable": "false",
    "status.replicas": "0",
    "status.successful": "0",
}
