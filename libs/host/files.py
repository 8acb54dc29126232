"""Changes to a machine's files, each with its way back written down first (docs/invariants.md#i12).

Undoing walks the list backwards. What somebody else changed since then is his, and stays. Files
below `/run` and `/proc` clear themselves and do not belong here.
"""

import hashlib
import os
import stat
from typing import Final

import msgspec

from libs.host.tree import Tree

STATE_ROOT: Final = "/var/lib/sluice"
"""What we keep on a machine; nobody else puts anything there."""

UNDO_LOG: Final = f"{STATE_ROOT}/undo"
_KEPT: Final = f"{UNDO_LOG}/before"


class FileState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a file was; nothing: it was not there."""

    kept: str = ""
    """Under which name its content is kept."""
    mode: int = 0
    owner: tuple[int, int] = (0, 0)


class FileChange(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="v", tag=1
):
    """One change, as it is written down before it is made."""

    path: str
    folder: bool = False
    """A folder that was made."""
    before: FileState | None = None
    after: str = ""
    """Fingerprint of what we wrote; empty: we removed it."""


class CorruptUndoLog(Exception):
    """The list of changes cannot be read: nothing may be changed on top of it."""


class UndoableFiles:
    """Changes files below a tree, and takes all of it back."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> bool:
        """Make the file say this; False if it does already."""
        if self._tree.data(path) == data and self._mode(path) == mode:
            return False
        self._folders(path.rpartition("/")[0])
        self._note(FileChange(path=path, before=self._before(path), after=_fingerprint(data)))
        self._put(path, data, mode)
        return True

    def remove(self, path: str) -> bool:
        """Make the file go; False if there is none."""
        before = self._before(path)
        if before is None:
            return False
        self._note(FileChange(path=path, before=before))
        self._tree.at(path).unlink()
        return True

    def undo(self) -> tuple[str, ...]:
        """Take back every change, the last one first; the paths that were left to somebody else."""
        left = [change.path for change in reversed(self._changes()) if not self._undone(change)]
        for name in self._tree.names(_KEPT):
            self._tree.at(f"{_KEPT}/{name}").unlink(missing_ok=True)
        self._tree.at(f"{UNDO_LOG}/list").unlink(missing_ok=True)
        for folder in (_KEPT, UNDO_LOG, STATE_ROOT):
            self._rmdir(folder)
        return tuple(dict.fromkeys(reversed(left)))

    def _undone(self, change: FileChange) -> bool:
        if change.folder:
            return self._rmdir(change.path)
        now = self._tree.data(change.path)
        if now is not None and _fingerprint(now) != change.after:
            return False
        if change.before is None:
            if now is not None:
                self._tree.at(change.path).unlink()
            return True
        if now is None and change.after:
            return False  # somebody removed what we had written: he does not want it
        kept = self._tree.data(f"{_KEPT}/{change.before.kept}")
        if kept is None:
            return False
        self._put(change.path, kept, change.before.mode)
        place = self._tree.at(change.path)
        if (place.stat().st_uid, place.stat().st_gid) != change.before.owner:
            os.chown(place, *change.before.owner)
        return True

    def _rmdir(self, path: str) -> bool:
        try:
            self._tree.at(path).rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False  # somebody put something into it
        return True

    def _folders(self, path: str) -> None:
        if not path or self._tree.at(path).is_dir():
            return
        self._folders(path.rpartition("/")[0])
        self._note(FileChange(path=path, folder=True))
        self._tree.at(path).mkdir(exist_ok=True)

    def _before(self, path: str) -> FileState | None:
        """How the file is now; its content is kept aside first."""
        place = self._tree.at(path)
        data = self._tree.data(path)
        if data is None:
            return None
        about = place.stat()
        name = _fingerprint(data)
        folder = self._tree.at(_KEPT)
        folder.mkdir(parents=True, exist_ok=True)
        _whole(folder, name, data, 0o600)
        mode = stat.S_IMODE(about.st_mode)
        return FileState(kept=name, mode=mode, owner=(about.st_uid, about.st_gid))

    def _mode(self, path: str) -> int:
        return stat.S_IMODE(self._tree.at(path).stat().st_mode)

    def _put(self, path: str, data: bytes, mode: int) -> None:
        place = self._tree.at(path)
        _whole(place.parent, place.name, data, mode)

    def _note(self, change: FileChange) -> None:
        """On disk before anything happens."""
        self._changes()
        folder = self._tree.at(UNDO_LOG)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "list").open("ab") as file:
            file.truncate(len(self._written()))
            file.write(msgspec.json.encode(change) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _written(self) -> bytes:
        """The list; a last line that was cut off is of a change that was not made."""
        data = self._tree.data(f"{UNDO_LOG}/list") or b""
        return data[: data.rfind(b"\n") + 1]

    def _changes(self) -> list[FileChange]:
        try:
            return [
                msgspec.json.decode(line, type=FileChange) for line in self._written().splitlines()
            ]
        except msgspec.DecodeError as error:
            raise CorruptUndoLog(
                f"{UNDO_LOG}/list on the host is not readable: {error}; a newer release may have"
                " written it: use that one, or move the folder away and take its changes back by"
                " hand"
            ) from None


def _fingerprint(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _whole(folder: "os.PathLike[str]", name: str, data: bytes, mode: int) -> None:
    """The whole file or none of it."""
    unfinished = os.path.join(folder, f".{name}.unfinished")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, os.path.join(folder, name))
