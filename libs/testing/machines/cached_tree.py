"""A simulated machine's files as its agents read them: on a disk of that machine's own size."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from libs.host.tree import Tree


class DiskTree(Tree):
    """They lie on this computer's disk, and how full that one is does not matter."""

    def __init__(self, root: Path, *, free: int) -> None:
        super().__init__(root)
        self._free = free

    def free_bytes(self, path: str) -> int | None:
        """Bytes that may still be written there; None if it is not there."""
        return self._free if self.exists(path) else None


T = TypeVar("T")


class CachedTree(Tree):
    """What was read stays true until `forget` is called."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree.root)
        self._tree = tree
        self._known: dict[tuple[str, str], object] = {}
        self._writing = False

    def at(self, path: str) -> Path:
        """Where that file is for us; whoever asks may write there, so nothing is kept meanwhile."""
        self._writing = True
        return super().at(path)

    def invalidate(self) -> None:
        """Something was written."""
        self._known.clear()

    def end_writes(self) -> None:
        """Whoever was given a place to write to has written."""
        if self._writing:
            self._writing = False
            self.invalidate()

    def data(self, path: str) -> bytes | None:
        """The content, or None if there is nothing to read."""
        return self._once("data", path, super().data)

    def text(self, path: str) -> str | None:
        """The content as text, or None if there is nothing to read."""
        return self._once("text", path, super().text)

    def names(self, path: str) -> tuple[str, ...]:
        """What is in a folder, in order; nothing, if there is none."""
        return self._once("names", path, super().names)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder, at the end of whatever links."""
        return self._once("exists", path, super().exists)

    def link(self, path: str) -> str | None:
        """What a link says, as it says it; None if it is no link."""
        return self._once("link", path, super().link)

    def modified_at(self, path: str) -> float | None:
        """When it was written last, in unix seconds; None if it is not there."""
        return self._once("made", path, super().modified_at)

    def free_bytes(self, path: str) -> int | None:
        """Bytes that may still be written there; None if it is not there."""
        return self._tree.free_bytes(path)

    def _resolved(self, path: str, *, last: bool) -> str:
        found = super()._resolved
        return self._once(f"resolved {last}", path, lambda it: found(it, last=last))

    def _once(self, what: str, path: str, read: Callable[[str], T]) -> T:
        if self._writing:
            return read(path)
        key = (what, path)
        if key not in self._known:
            self._known[key] = read(path)
        return cast(T, self._known[key])
