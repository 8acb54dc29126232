"""The store: objects of every kind as bytes, one revision counter, and the recent changes."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import msgspec

from libs.testing.apiserver.kinds.kind import NAME_FIELDS, ResourceKind
from libs.testing.apiserver.kinds.status_errors import bad_request
from libs.testing.apiserver.objects.json import decoded, encoded, interned, ordered, renumbered
from libs.testing.apiserver.objects.selectors import field_selector, label_selector
from libs.testing.apiserver.status import StatusError

HISTORY_BYTES = 40 * 1024**2
"""The memory that the history of one kind may take."""

Key = tuple[str, str]
"""Group and plural."""


class StoredObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One object as it was at one revision."""

    namespace: str
    name: str
    uid: str
    revision: int
    raw: bytes
    labels: dict[str, str]
    fields: tuple[str, ...]
    """The values of the kind's field selectors, in the kind's order; empty for a custom kind."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class StoredChange(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one object by one revision."""

    revision: int
    before: StoredObject | None
    after: StoredObject | None

    @property
    def key(self) -> str:
        return (self.after or self.before).key  # pyright: ignore[reportOptionalMemberAccess]

    def deleted_object(self) -> bytes:
        """Return the object of a DELETED event: the last state, at this revision."""
        if self.before is None:
            raise LookupError("a created object has no deleted state")
        return renumbered(self.before.raw, self.before.revision, self.revision)


class KindStore:
    """All objects of a kind, and their recent history."""

    def __init__(self, *, history_limit: int) -> None:
        self._objects: dict[str, StoredObject] = {}
        self._keys: list[str] = []
        self._history: deque[StoredChange] = deque()
        self._history_limit = history_limit
        self._history_changes = 0
        self.oldest = 0
        """The oldest revision for the start of a watch and for a list."""

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, namespace: str, name: str) -> StoredObject | None:
        return self._objects.get(f"{namespace}/{name}")

    def select(self, namespace: str, *, after: str = "") -> Iterator[StoredObject]:
        """Iterate in key order, over all namespaces where none is given."""
        for key in self._range(self._keys, namespace, after):
            yield self._objects[key]

    def as_of(self, revision: int, namespace: str, *, after: str = "") -> Iterator[StoredObject]:
        """Iterate over the objects as of a revision in the history."""
        changed: dict[str, StoredObject | None] = {}
        for change in reversed(self._history):
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
        later: list[StoredChange] = []
        for change in reversed(self._history):
            if change.revision <= revision:
                break
            later.append(change)
        later.reverse()
        return later

    def revision_before(self, revisions: int, *, now: int) -> int:
        """Return the revision before this many changes, or the oldest known one."""
        if revisions <= 0:
            return now
        if revisions < len(self._history):
            return self._history[-revisions - 1].revision
        return self.oldest

    def put(self, change: StoredChange) -> None:
        key = change.key
        if change.after is None:
            del self._objects[key]
            del self._keys[bisect_left(self._keys, key)]
        else:
            if key not in self._objects:
                insort(self._keys, key)
            self._objects[key] = change.after
        self._history.append(change)
        self._history_changes += _history_size(change)
        while len(self._history) > self._history_limit or self._history_changes > HISTORY_BYTES:
            first = self._history.popleft()
            self._history_changes -= _history_size(first)
            self.oldest = first.revision

    def forget(self, revision: int) -> None:
        """Forget all changes up to this revision."""
        self._history.clear()
        self._history_changes = 0
        self.oldest = revision

    def _range(self, keys: list[str], namespace: str, after: str) -> Iterator[str]:
        first = f"{namespace}/" if namespace else ""
        start = bisect_left(keys, max(first, after))
        # A copy: the store may change during the iteration.
        end = bisect_left(keys, f"{namespace}0") if namespace else len(keys)
        return iter(keys[start:end])


def _history_size(change: StoredChange) -> int:
    """Return the bytes that only the history holds."""
    return len(change.before.raw) if change.before is not None else 0


class Store:
    """The stores of all kinds; each write takes the next revision."""

    def __init__(
        self, *, history_limit: int, written: Callable[[ResourceKind, StoredChange], None]
    ) -> None:
        self._stores: dict[Key, KindStore] = {}
        self._history_limit = history_limit
        self._written = written
        self._dry = False
        self.revision = 1

    def of_kind(self, kind: ResourceKind) -> KindStore:
        return self._store((kind.group, kind.plural))

    def _store(self, key: Key) -> KindStore:
        if key not in self._stores:
            self._stores[key] = KindStore(history_limit=self._history_limit)
        return self._stores[key]

    def namespace_store(self) -> KindStore:
        return self._store(("", "namespaces"))

    def account_store(self) -> KindStore:
        return self._store(("", "serviceaccounts"))

    def put(
        self, kind: ResourceKind, obj: Mapping[str, Any], *, before: StoredObject | None
    ) -> StoredObject:
        revision = self._next(before)
        metadata: dict[str, Any] = {**obj["metadata"], "resourceVersion": str(revision or "")}
        complete = ordered({**obj, "metadata": metadata})
        labels: dict[str, str] = metadata.get("labels") or {}
        unchanged = before is not None and before.labels == labels
        stored = StoredObject(
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            uid=metadata["uid"],
            revision=revision,
            raw=encoded(complete),
            labels=before.labels if before is not None and unchanged else interned(labels),
            fields=() if kind.custom else tuple(field(complete, path) for path in kind.selectable),
        )
        self._commit(kind, StoredChange(revision=revision, before=before, after=stored))
        return stored

    def remove(self, kind: ResourceKind, before: StoredObject) -> StoredChange:
        change = StoredChange(revision=self._next(before), before=before, after=None)
        self._commit(kind, change)
        return change

    @contextmanager
    def dry_run(self, *, on: bool) -> Generator[None]:
        """Store nothing until the end, if this is a dry run."""
        self._dry = on
        try:
            yield
        finally:
            self._dry = False

    def forget(self) -> None:
        for store in self._stores.values():
            store.forget(self.revision)

    def _next(self, before: StoredObject | None) -> int:
        if self._dry:
            return 0 if before is None else before.revision
        self.revision += 1
        return self.revision

    def _commit(self, kind: ResourceKind, change: StoredChange) -> None:
        if not self._dry:
            self.of_kind(kind).put(change)
            self._written(kind, change)


def field(obj: Mapping[str, Any], path: str) -> str:
    """Return the value of a field as a fieldSelector compares it."""
    value: Any = obj
    for name in ("source.component" if path == "source" else path).split("."):
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    if isinstance(value, bool) or path == "spec.unschedulable":
        return "true" if value else "false"
    return "" if value is None or isinstance(value, dict | list) else str(value)


class Selection:
    def __init__(
        self, kind: ResourceKind, *, namespace: str, name: str, query: Mapping[str, str]
    ) -> None:
        self.namespace = namespace
        self._name = name
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        self._labels = label_selector(labels) if labels else None
        self._fields = _by_fields(kind, fields) if fields else None
        self._indexed = not kind.custom
        self._indexes = {path: index for index, path in enumerate(kind.selectable)}

    @property
    def by_selector(self) -> bool:
        """Whether labels or fields select: then a page does not count what remains."""
        return self._labels is not None or self._fields is not None

    def matches(self, stored: StoredObject) -> bool:
        if self.namespace and stored.namespace != self.namespace:
            return False
        if self._name and stored.name != self._name:
            return False
        if self._labels is not None and not self._labels(stored.labels):
            return False
        return self._fields is None or self._fields(self._getter(stored))

    def _getter(self, stored: StoredObject) -> Callable[[str], str]:
        if self._indexed:
            return lambda path: stored.fields[self._indexes[path]]
        obj = decoded(stored.raw)
        return lambda path: field(obj, path)


def _by_fields(kind: ResourceKind, text: str) -> Callable[[Callable[[str], str]], bool]:
    try:
        return field_selector(text, supported=kind.selectable)
    except StatusError as error:
        path = error.message.removeprefix("field label not supported: ")
        if kind.custom or set(kind.selectable) - set(NAME_FIELDS) or path == error.message:
            raise
        known = ", ".join(f'"{each}"' for each in NAME_FIELDS)
        raise bad_request(f'"{path}" is not a known field selector: only {known}') from error
