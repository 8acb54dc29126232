"""Reversible changes to a machine's files (docs/invariants.md#i12).

Each change is logged before it is made. `undo` takes the changes back, last one first, but leaves
files that others changed since then. Files below `/run` and `/proc` do not survive a reboot and
need no undo.
"""

import hashlib
import os
import stat
from typing import Final

import msgspec

from libs.host.tree import Tree

STATE_ROOT: Final = "/var/lib/sluice"
"""Sluice's own folder on a machine."""

UNDO_LOG: Final = f"{STATE_ROOT}/undo"
_KEPT: Final = f"{UNDO_LOG}/before"


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

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> bool:
        """Write a file; return False if it has this content and mode already."""
        if self._tree.data(path) == data and self._mode(path) == mode:
            return False
        self._make_folders(path.rpartition("/")[0])
        self._log(FileChange(path=path, before=self._keep(path), after=_fingerprint(data)))
        self._put(path, data, mode)
        return True

    def remove(self, path: str) -> bool:
        """Remove a file; return False if there is none."""
        before = self._keep(path)
        if before is None:
            return False
        self._log(FileChange(path=path, before=before))
        self._tree.at(path).unlink()
        return True

    def undo(self) -> tuple[str, ...]:
        """Take back all changes; return the paths left as they are, because others changed them."""
        left = [change.path for change in reversed(self._changes()) if not self._take_back(change)]
        for name in self._tree.names(_KEPT):
            self._tree.at(f"{_KEPT}/{name}").unlink(missing_ok=True)
        self._tree.at(f"{UNDO_LOG}/list").unlink(missing_ok=True)
        for folder in (_KEPT, UNDO_LOG, STATE_ROOT):
            self._rmdir(folder)
        return tuple(dict.fromkeys(reversed(left)))

    def _take_back(self, change: FileChange) -> bool:
        if change.folder:
            return self._rmdir(change.path)
        data = self._tree.data(change.path)
        if data is not None and _fingerprint(data) != change.after:
            return False
        if change.before is None:
            if data is not None:
                self._tree.at(change.path).unlink()
            return True
        if data is None and change.after:
            return False  # the file that was written has been removed by others since
        kept = self._tree.data(f"{_KEPT}/{change.before.kept}")
        if kept is None:
            return False
        self._put(change.path, kept, change.before.mode)
        path = self._tree.at(change.path)
        if (path.stat().st_uid, path.stat().st_gid) != change.before.owner:
            os.chown(path, *change.before.owner)
        return True

    def _rmdir(self, path: str) -> bool:
        try:
            self._tree.at(path).rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False  # others put files into the folder
        return True

    def _make_folders(self, path: str) -> None:
        if not path or self._tree.at(path).is_dir():
            return
        self._make_folders(path.rpartition("/")[0])
        self._log(FileChange(path=path, folder=True))
        self._tree.at(path).mkdir(exist_ok=True)

    def _keep(self, path: str) -> FileState | None:
        """Save the content of a file and return its state; None where there is no file."""
        data = self._tree.data(path)
        if data is None:
            return None
        stats = self._tree.at(path).stat()
        name = _fingerprint(data)
        folder = self._tree.at(_KEPT)
        folder.mkdir(parents=True, exist_ok=True)
        _write_atomically(folder, name, data, 0o600)
        mode = stat.S_IMODE(stats.st_mode)
        return FileState(kept=name, mode=mode, owner=(stats.st_uid, stats.st_gid))

    def _mode(self, path: str) -> int:
        return stat.S_IMODE(self._tree.at(path).stat().st_mode)

    def _put(self, path: str, data: bytes, mode: int) -> None:
        target = self._tree.at(path)
        _write_atomically(target.parent, target.name, data, mode)

    def _log(self, change: FileChange) -> None:
        """Append a change to the undo log, durably."""
        self._changes()
        folder = self._tree.at(UNDO_LOG)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "list").open("ab") as file:
            file.truncate(len(self._complete_lines()))
            file.write(msgspec.json.encode(change) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _complete_lines(self) -> bytes:
        """Return the log without a truncated last line, whose change was never made."""
        data = self._tree.data(f"{UNDO_LOG}/list") or b""
        return data[: data.rfind(b"\n") + 1]

    def _changes(self) -> list[FileChange]:
        lines = self._complete_lines().splitlines()
        try:
            return [msgspec.json.decode(line, type=FileChange) for line in lines]
        except msgspec.DecodeError as error:
            raise CorruptUndoLog(
                f"{UNDO_LOG}/list on the host is not readable: {error}; a newer release may have"
                " written it: use that one, or move the folder away and take its changes back by"
                " hand"
            ) from None


def _fingerprint(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write_atomically(folder: "os.PathLike[str]", name: str, data: bytes, mode: int) -> None:
    unfinished = os.path.join(folder, f".{name}.unfinished")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, os.path.join(folder, name))
