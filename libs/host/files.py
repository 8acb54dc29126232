"""Reversible changes to a machine's files (docs/invariants.md#i12).

Each change is logged before it is made. `undo` takes the changes back, last one first, but leaves
files that others changed since then. Files below `/run` and `/proc` do not survive a reboot and
need no undo.
"""

import hashlib
from typing import Final

import msgspec

from libs.host.tree import Tree, Unreadable

STATE_ROOT: Final = "/var/lib/sluice"
"""Sluice's own folder on a machine."""

UNDO_LOG: Final = f"{STATE_ROOT}/undo"
_KEPT: Final = f"{UNDO_LOG}/before"
_LIST: Final = f"{UNDO_LOG}/list"


class FileState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file before its change."""

    kept: str = ""
    """The name under which its content is kept."""
    mode: int = 0
    owner: tuple[int, int] = (0, 0)


class FileChange(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="v", tag=1
):
    """An entry of the undo log."""

    path: str
    folder: bool = False
    """A folder was created."""
    before: FileState | None = None
    """None: the file did not exist."""
    after: str = ""
    """Fingerprint of the written content; empty: the file was removed."""


class CorruptUndoLog(Exception):
    """The undo log cannot be read, so that no further change may be made."""


class UndoableFiles:
    """Changes files below a tree, and takes all changes back."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    @property
    def has_changes(self) -> bool:
        """Whether there is something to take back."""
        return self._tree.exists(_LIST)

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> bool:
        """Write a file; return False if it has this content and mode already."""
        if self._tree.data(path) == data and self._tree.mode(path) == mode:
            return False
        self._make_folders(path.rpartition("/")[0])
        self._log(FileChange(path=path, before=self._keep(path), after=_fingerprint(data)))
        self._tree.write(path, data, mode=mode)
        return True

    def remove(self, path: str) -> bool:
        """Remove a file; return False if there is none."""
        before = self._keep(path)
        if before is None:
            return False
        self._log(FileChange(path=path, before=before))
        self._tree.remove(path)
        return True

    def undo(self) -> tuple[str, ...]:
        """Take back all changes; return the paths left as they are, because others changed them."""
        left = [change.path for change in reversed(self._changes()) if not self._take_back(change)]
        for name in self._tree.names(_KEPT):
            self._tree.remove(f"{_KEPT}/{name}")
        self._tree.remove(_LIST)
        for folder in (_KEPT, UNDO_LOG, STATE_ROOT):
            self._rmdir(folder)
        return tuple(dict.fromkeys(reversed(left)))

    def _take_back(self, change: FileChange) -> bool:
        if change.folder:
            return self._rmdir(change.path)
        self._tree.remove_unfinished(change.path)
        try:
            data = self._tree.data(change.path)
        except Unreadable:
            return False  # others put something else there
        if data is not None and (found := _fingerprint(data)) != change.after:
            # The process may have been killed between the entry and the change.
            return change.before is not None and found == change.before.kept
        if change.before is None:
            self._tree.remove(change.path)
            return True
        if data is None and change.after:
            return False  # the file that was written has been removed by others since
        kept = self._tree.data(f"{_KEPT}/{change.before.kept}")
        if kept is None:
            return False
        before = change.before
        self._tree.write(change.path, kept, mode=before.mode, owner=before.owner)
        return True

    def _rmdir(self, path: str) -> bool:
        try:
            self._tree.remove_folder(path)
        except OSError:
            return False  # others put files into the folder
        return True

    def _make_folders(self, path: str) -> None:
        if not path or self._tree.is_folder(path):
            return
        self._make_folders(path.rpartition("/")[0])
        self._log(FileChange(path=path, folder=True))
        self._tree.make_folders(path)

    def _keep(self, path: str) -> FileState | None:
        """Save the content of a file and return its state; None where there is no file."""
        tree = self._tree
        data, mode, owner = tree.data(path), tree.mode(path), tree.owner(path)
        if data is None or mode is None or owner is None:
            return None
        name = _fingerprint(data)
        tree.write(f"{_KEPT}/{name}", data, mode=0o600)
        return FileState(kept=name, mode=mode, owner=owner)

    def _log(self, change: FileChange) -> None:
        """Append a change to the undo log, durably."""
        self._changes()
        line = msgspec.json.encode(change) + b"\n"
        self._tree.append(_LIST, line, after=len(self._complete_lines()))

    def _complete_lines(self) -> bytes:
        """Return the log without a truncated last line, whose change was never made."""
        data = self._tree.data(_LIST) or b""
        return data[: data.rfind(b"\n") + 1]

    def _changes(self) -> list[FileChange]:
        lines = self._complete_lines().splitlines()
        try:
            return [msgspec.json.decode(line, type=FileChange) for line in lines]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptUndoLog(
                f"{_LIST} on the host is not readable: {error}; a newer release may have"
                " written it: use that one, or move the folder away and take its changes back by"
                " hand"
            ) from None


def _fingerprint(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
