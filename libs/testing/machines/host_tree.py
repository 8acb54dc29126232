"""Write the files of a simulated machine; a write is visible whole or not at all.

Readers use `libs.host.tree`.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar, cast

from libs.host.tree import Tree


class HostTree:
    """A machine's root, writable."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.on_write: Callable[[], None] = _ignore_write
        """Called after each change below the root."""

    def at(self, path: str) -> Path:
        """Return the path on this computer; links are not followed."""
        return self.root / path.lstrip("/")

    def put(self, path: str, content: str | bytes = "") -> None:
        """Replace a file's content atomically."""
        target_path = self.at(path)
        unfinished = target_path.with_name(f".{target_path.name}.unfinished")
        data = content.encode() if isinstance(content, str) else content
        try:
            unfinished.write_bytes(data)
        except FileNotFoundError:
            target_path.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(data)
        unfinished.replace(target_path)
        self.on_write()

    def link(self, path: str, target: str) -> None:
        """Replace a symbolic link."""
        target_path = self.at(path)
        target_path.parent.mkdir(parents=True, exist_ok=True)
        target_path.unlink(missing_ok=True)
        target_path.symlink_to(target)
        self.on_write()

    def make_folder(self, path: str) -> None:
        self.at(path).mkdir(parents=True, exist_ok=True)
        self.on_write()

    def set_mtime(self, path: str, at: float) -> None:
        """Set the modification time, in unix seconds."""
        os.utime(self.at(path), (at, at))
        self.on_write()

    def empty(self, path: str) -> None:
        """Delete a folder's content."""
        self.remove(path)
        self.make_folder(path)

    def remove(self, path: str) -> None:
        """Remove a file or a folder with its content, at once."""
        target_path = self.at(path)
        if target_path.is_symlink() or target_path.is_file():
            target_path.unlink()
        elif target_path.exists():
            doomed = target_path.with_name(f".{target_path.name}.going")
            shutil.rmtree(doomed, ignore_errors=True)
            target_path.rename(doomed)
            shutil.rmtree(doomed)
        self.on_write()

    def break_below(self, path: str) -> None:
        """Make everything in a folder unreadable and unwritable, like a failed disk."""
        target_path = self.at(path)
        if target_path.is_dir():
            target_path.rename(_lost_path(target_path))
            target_path.write_bytes(b"")
        self.on_write()

    def repair_below(self, path: str) -> None:
        """Undo `break_below`."""
        target_path = self.at(path)
        if target_path.is_file():
            target_path.unlink()
            os.rename(_lost_path(target_path), target_path)
        self.on_write()


def _ignore_write() -> None:
    pass


def _lost_path(target_path: Path) -> Path:
    return target_path.with_name(f".{target_path.name}.lost")


class DiskTree(Tree):
    """Reports the machine's own free space instead of this computer's."""

    def __init__(self, root: Path, *, free: int) -> None:
        super().__init__(root)
        self._free = free

    def free_bytes(self, path: str) -> int | None:
        return self._free if self.exists(path) else None


T = TypeVar("T")


class CachedTree(Tree):
    """Caches every read until the next write, or until `invalidate`."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree.root)
        self._tree = tree
        self._values: dict[tuple[str, str], object] = {}

    def invalidate(self) -> None:
        self._values.clear()

    def data(self, path: str) -> bytes | None:
        return self._cached("data", path, super().data)

    def names(self, path: str) -> tuple[str, ...]:
        return self._cached("names", path, super().names)

    def link(self, path: str) -> str | None:
        return self._cached("link", path, super().link)

    def free_bytes(self, path: str) -> int | None:
        return self._tree.free_bytes(path)

    def status(self, path: str) -> os.stat_result | None:
        return self._cached("status", path, super().status)

    def write_chunks(
        self,
        path: str,
        chunks: Iterable[bytes],
        *,
        mode: int = 0o644,
        owner: tuple[int, int] | None = None,
    ) -> None:
        super().write_chunks(path, chunks, mode=mode, owner=owner)
        self.invalidate()

    def make_link(self, path: str, target: str) -> None:
        super().make_link(path, target)
        self.invalidate()

    def append(self, path: str, data: bytes, *, after: int) -> None:
        super().append(path, data, after=after)
        self.invalidate()

    def make_folders(self, path: str) -> None:
        super().make_folders(path)
        self.invalidate()

    def remove(self, path: str) -> None:
        super().remove(path)
        self.invalidate()

    def remove_folder(self, path: str) -> None:
        super().remove_folder(path)
        self.invalidate()

    def _cached(self, kind: str, path: str, read: Callable[[str], T]) -> T:
        key = (kind, path)
        if key not in self._values:
            self._values[key] = read(path)
        return cast(T, self._values[key])
