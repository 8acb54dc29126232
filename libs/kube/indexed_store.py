"""Objects by key and by index: what a cache holds, and which of two states of an object is later.

Pure: what comes in is decided on by revisions alone. Knows neither server, clock nor watchers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

from libs.kube.views import Object

V = TypeVar("V", bound=Object)

IndexFunc: TypeAlias = Callable[[V], Iterable[str]]
"""Under which values an object is found. Pure: the same for the same object."""

Change: TypeAlias = tuple[V | None, V | None]
"""What an object was, and what it is; None where it was not, or is not any more."""


class IndexedStore(Generic[V]):
    """Says what each step has changed; no object goes back to an earlier revision."""

    def __init__(self, indexes: Mapping[str, IndexFunc[V]]) -> None:
        self._objects: dict[str, V] = {}
        self._indexes = indexes
        self._under: dict[str, dict[str, dict[str, V]]] = {name: {} for name in indexes}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[V]:
        return iter(self._objects.values())

    def get(self, key: str) -> V | None:
        """The object of that key."""
        return self._objects.get(key)

    def by_index(self, index: str, value: str) -> list[V]:
        """Those that the index puts under that value."""
        return list(self._under[index].get(value, {}).values())

    def put(self, view: V) -> list[Change[V]]:
        """As the server has it, unless what is held is as new."""
        held = self._objects.get(view.metadata.key)
        if held is not None and revision_of(view) <= revision_of(held):
            return []
        return [self._put(view)]

    def drop(self, view: V, *, at: int) -> list[Change[V]]:
        """It is gone as of that revision, unless what is held came after."""
        held = self._objects.get(view.metadata.key)
        if held is None or revision_of(held) > at:
            return []
        return [self._drop(held)]

    def replace(self, items: Iterable[V], *, at: int) -> list[Change[V]]:
        """These are all that there were at that revision: what is held and newer stays."""
        listed = {item.metadata.key: item for item in items}
        gone = [view for key, view in self._objects.items() if key not in listed]
        changes = [change for view in gone for change in self.drop(view, at=at)]
        changes.extend(change for view in listed.values() for change in self.put(view))
        return changes

    def reset(self, items: Iterable[V]) -> list[Change[V]]:
        """These are all that there are, whatever was held: its revisions mean nothing now."""
        listed = {item.metadata.key: item for item in items}
        gone = [view for key, view in self._objects.items() if key not in listed]
        changes = [self._drop(view) for view in gone]
        changes.extend(
            self._put(view) for key, view in listed.items() if self._objects.get(key) != view
        )
        return changes

    def _put(self, view: V) -> Change[V]:
        key = view.metadata.key
        held = self._objects.get(key)
        if held is not None:
            self._unlist(key, held)
        self._objects[key] = view
        for name, index in self._indexes.items():
            for value in index(view):
                self._under[name].setdefault(value, {})[key] = view
        return held, view

    def _drop(self, held: V) -> Change[V]:
        key = held.metadata.key
        self._unlist(key, held)
        del self._objects[key]
        return held, None

    def _unlist(self, key: str, held: V) -> None:
        for name, index in self._indexes.items():
            under = self._under[name]
            for value in index(held):
                found = under.get(value, {})
                found.pop(key, None)
                if not found:
                    under.pop(value, None)


def revision_of(view: Object) -> int:
    """As a number; the watch has checked that it is one."""
    return int(view.metadata.resource_version)
