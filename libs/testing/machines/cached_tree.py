"""The files of a simulated machine as its agents read them: sized like its disk, and cached."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from libs.host.tree import Tree


class DiskTree(Tree):
    """Reports the machine's own free space, whatever this computer's disk has."""

    def __init__(self, root: Path, *, free: int) -> None:
        super().__init__(root)
        self._free = free

    def free_bytes(self, path: str) -> int | None:
        return self._free if self.exists(path) else None


T = TypeVar("T")


class CachedTree(Tree):
    """Caches every read until `invalidate`."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree.root)
        self._tree = tree
        self._values: dict[tuple[str, str], object] = {}
        self._writing = False

    def at(self, path: str) -> Path:
        """Return the path on this computer; disables the cache until `end_writes`, as callers may
        write.
        """
        self._writing = True
        return super().at(path)

    def invalidate(self) -> None:
        self._values.clear()

    def end_writes(self) -> None:
        """Invalidate the cache if a path was handed out."""
        if self._writing:
            self._writing = False
            self.invalidate()

    def data(self, path: str) -> bytes | None:
        return self._cached("data", path, super().data)

    def text(self, path: str) -> str | None:
        return self._cached("text", path, super().text)

    def names(self, path: str) -> tuple[str, ...]:
        return self._cached("names", path, super().names)

    def exists(self, path: str) -> bool:
        return self._cached("exists", path, super().exists)

    def link(self, path: str) -> str | None:
        return self._cached("link", path, super().link)

    def modified_at(self, path: str) -> float | None:
        return self._cached("made", path, super().modified_at)

    def free_bytes(self, path: str) -> int | None:
        return self._tree.free_bytes(path)

    def _resolved(self, path: str, *, last: bool) -> str:
        resolve = super()._resolved
        return self._cached(f"resolved {last}", path, lambda each: resolve(each, last=last))

    def _cached(self, what: str, path: str, read: Callable[[str], T]) -> T:
        if self._writing:
            return read(path)
        key = (what, path)
        if key not in self._values:
            self._values[key] = read(path)
        return cast(T, self._values[key])
