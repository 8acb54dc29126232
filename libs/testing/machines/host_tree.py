"""Write the files of a simulated machine; a write is visible whole or not at all.

Readers use `libs.host.tree`.
"""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class HostTree:
    """A machine's root, writable."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.on_write: Callable[[], None] = _nothing
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
            target_path.rename(_aside(target_path))
            target_path.write_bytes(b"")
        self.on_write()

    def repair_below(self, path: str) -> None:
        """Restore what `break_below` took away."""
        target_path = self.at(path)
        if target_path.is_file():
            target_path.unlink()
            os.rename(_aside(target_path), target_path)
        self.on_write()


def _nothing() -> None:
    pass


def _aside(target_path: Path) -> Path:
    return target_path.with_name(f".{target_path.name}.lost")
