"""Objects by key and by index, as a cache keeps them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

from libs.kube.views import Object

V = TypeVar("V", bound=Object)

IndexFunc: TypeAlias = Callable[[V], Iterable[str]]
"""Return the index values of an object. Must be pure."""

Change: TypeAlias = tuple[V | None, V | None]
"""The old and the new object; None before creation and after deletion."""


class IndexedStore(Generic[V]):
    """Objects by key and by index. No object moves to an earlier revision."""

    def __init__(self, indexes: Mapping[str, IndexFunc[V]]) -> None:
        self._objects: dict[str, V] = {}
        self._indexes = indexes
        self._by_index: dict[str, dict[str, dict[str, V]]] = {name: {} for name in indexes}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[V]:
        return iter(self._objects.values())

    def get(self, key: str) -> V | None:
        return self._objects.get(key)

    def by_index(self, index: str, value: str) -> list[V]:
        return list(self._by_index[index].get(value, {}).values())

    def put(self, view: V) -> list[Change[V]]:
        """Store an object unless the stored one is as new."""
        stored = self._objects.get(view.metadata.key)
        if stored is not None and revision_of(view) <= revision_of(stored):
            return []
        return [self._put(view)]

    def drop(self, view: V, *, at: int) -> list[Change[V]]:
        """Remove an object deleted at that revision, unless the stored one is newer."""
        stored = self._objects.get(view.metadata.key)
        if stored is None or revision_of(stored) > at:
            return []
        return [self._drop(stored)]

    def replace(
        self, items: Iterable[V], *, at: int, kept: Collection[str] = ()
    ) -> list[Change[V]]:
        """Replace the content by a list at that revision; keep stored objects that are newer, and
        those with keys in `kept`.
        """
        listed = {item.metadata.key: item for item in items}
        missing = [
            view for key, view in self._objects.items() if key not in listed and key not in kept
        ]
        changes = [change for view in missing for change in self.drop(view, at=at)]
        changes.extend(change for view in listed.values() for change in self.put(view))
        return changes

    def reset(self, items: Iterable[V]) -> list[Change[V]]:
        """Replace the content by a list, also where stored revisions are higher: they are void."""
        listed = {item.metadata.key: item for item in items}
        missing = [view for key, view in self._objects.items() if key not in listed]
        changes = [self._drop(view) for view in missing]
        changes.extend(
            self._put(view) for key, view in listed.items() if self._objects.get(key) != view
        )
        return changes

    def _put(self, view: V) -> Change[V]:
        key = view.metadata.key
        stored = self._objects.get(key)
        if stored is not None:
            self._unindex(key, stored)
        self._objects[key] = view
        for name, index in self._indexes.items():
            for value in index(view):
                self._by_index[name].setdefault(value, {})[key] = view
        return stored, view

    def _drop(self, stored: V) -> Change[V]:
        key = stored.metadata.key
        self._unindex(key, stored)
        del self._objects[key]
        return stored, None

    def _unindex(self, key: str, stored: V) -> None:
        for name, index in self._indexes.items():
            by_value = self._by_index[name]
            for value in index(stored):
                entries = by_value.get(value, {})
                entries.pop(key, None)
                if not entries:
                    by_value.pop(value, None)


def revision_of(view: Object) -> int:
    """Return the revision as a number, as checked by `require_revisions`."""
    return int(view.metadata.resource_version)
