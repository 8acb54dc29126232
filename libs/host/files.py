"""Reversible changes to a machine's files (docs/invariants.md#i12).

Each change is logged before it is made. `undo` takes the changes back, last one first, but leaves
files that others changed since then. Files below `/run` and `/proc` do not survive a reboot and
need no undo.
"""

import errno
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from libs.host.tree import Tree, Unreadable

STATE_ROOT: Final = "/var/lib/sluice"
"""Sluice's own folder on a machine."""

UNDO_LOG: Final = f"{STATE_ROOT}/undo"
"""The log of what is changed for the container runtime."""

_IMPOSSIBLE: Final = frozenset((errno.ENAMETOOLONG, errno.ENOTDIR, errno.EINVAL, errno.ELOOP))
"""Errors of a path itself, which do not pass."""


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
    link: str = ""
    """The target of a symbolic link that was made where nothing was."""


class CorruptUndoLog(Exception):
    """The undo log cannot be read, so that no further change may be made."""


class PathTaken(Exception):
    """Something is at a path already that only a new file may take."""


class OtherContent(Exception):
    """What was to be written is not what its fingerprint says."""


class UndoableFiles:
    """Changes files below a tree, and takes all changes back."""

    def __init__(self, tree: Tree, log: str = UNDO_LOG) -> None:
        """`log` is the folder of the undo log, below Sluice's own."""
        self._tree = tree
        self._folder = log
        self._kept = f"{log}/before"
        self._list = f"{log}/list"
        self._logged: int | None = None
        """Bytes of the log, once it was read; no other process writes to it meanwhile."""

    @property
    def has_changes(self) -> bool:
        """Whether there is something to take back."""
        return self._tree.exists(self._list)

    def logged(self) -> dict[str, FileChange]:
        """Return the last change of each file and link, by path."""
        return {change.path: change for change in self._changes() if not change.folder}

    def created(self) -> tuple[str, ...]:
        """Return the files that were not there before, and are as they were written last."""
        last = self.logged()
        first = {change.path: change for change in reversed(self._changes())}
        return tuple(
            path
            for path, change in last.items()
            if first[path].before is None and self.is_as_written(change)
        )

    def is_as_written(self, change: FileChange) -> bool:
        """Return whether a file or link is still as it was written."""
        found = self._tree.link(change.path)
        if found is not None or change.link:
            return found == change.link
        try:
            return fingerprint(self._tree, change.path) == change.after
        except Unreadable:
            return False

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

    def create(
        self, path: str, chunks: Callable[[], Iterable[bytes]], *, mode: int, digest: str
    ) -> None:
        """Create a file of any size with the content of this fingerprint.

        Raise `PathTaken` where anything is already, be it a broken link, and `OtherContent` where
        the content has another fingerprint: nothing is at the path then.
        """
        self._prepare(path)
        self._log(FileChange(path=path, after=digest))
        self._tree.write_chunks(path, _verified(chunks(), digest), mode=mode)

    def create_link(self, path: str, target: str) -> None:
        """Create a symbolic link; raise `PathTaken` where anything is already."""
        self._prepare(path)
        self._log(FileChange(path=path, link=target))
        self._tree.make_link(path, target)

    def _prepare(self, path: str) -> None:
        if is_taken(self._tree, path):
            raise PathTaken(f"{path} is on this machine already, and not from Sluice")
        self._make_folders(path.rpartition("/")[0])

    def undo(self) -> tuple[str, ...]:
        """Take back all changes; return the paths left as they are.

        Others changed them, or they are paths that no file of this machine can have.
        """
        left = [change.path for change in reversed(self._changes()) if not self._try_back(change)]
        for name in self._tree.names(self._kept):
            self._tree.remove(f"{self._kept}/{name}")
        self._tree.remove(self._list)
        self._logged = None
        for folder in (self._kept, self._folder, STATE_ROOT):
            self._rmdir(folder)
        return tuple(dict.fromkeys(reversed(left)))

    def _try_back(self, change: FileChange) -> bool:
        try:
            return self._take_back(change)
        except ValueError:
            return False
        except OSError as error:
            reason = error.__cause__ if isinstance(error, Unreadable) else error
            if not isinstance(reason, OSError) or reason.errno not in _IMPOSSIBLE:
                raise
            return False

    def _take_back(self, change: FileChange) -> bool:
        if change.folder:
            return self._rmdir(change.path)
        if change.link:
            return self._take_back_link(change)
        self._tree.remove_unfinished(change.path)
        try:
            found = fingerprint(self._tree, change.path)
        except Unreadable:
            return False  # others put something else there
        if found is not None and found != change.after:
            # The process may have been killed between the entry and the change.
            return change.before is not None and found == change.before.kept
        if change.before is None:
            self._tree.remove(change.path)
            return True
        if found is None and change.after:
            return False  # the file that was written has been removed by others since
        kept = self._tree.data(f"{self._kept}/{change.before.kept}")
        if kept is None:
            return False
        before = change.before
        self._tree.write(change.path, kept, mode=before.mode, owner=before.owner)
        return True

    def _take_back_link(self, change: FileChange) -> bool:
        target = self._tree.link(change.path)
        if target is None:
            return not is_taken(self._tree, change.path)
        if target == change.link:
            self._tree.remove(change.path)
        return target == change.link

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
        tree.write(f"{self._kept}/{name}", data, mode=0o600)
        return FileState(kept=name, mode=mode, owner=owner)

    def _log(self, change: FileChange) -> None:
        """Append a change to the undo log, durably."""
        if self._logged is None:
            self._changes()
            self._logged = len(self._complete_lines())
        line = msgspec.json.encode(change) + b"\n"
        self._tree.append(self._list, line, after=self._logged)
        self._logged += len(line)

    def _complete_lines(self) -> bytes:
        """Return the log without a truncated last line, whose change was never made."""
        try:
            data = b"".join(self._tree.chunks(self._list))  # of any size
        except FileNotFoundError:
            return b""
        return data[: data.rfind(b"\n") + 1]

    def _changes(self) -> list[FileChange]:
        lines = self._complete_lines().splitlines()
        try:
            return [msgspec.json.decode(line, type=FileChange) for line in lines]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptUndoLog(
                f"{self._list} on the host is not readable: {error}; a newer release may have"
                " written it: use that one, or move the folder away and take its changes back by"
                " hand"
            ) from None


def fingerprint(tree: Tree, path: str) -> str | None:
    """Return the fingerprint of a file of any size; None if it is missing."""
    digest = hashlib.sha256()
    try:
        for chunk in tree.chunks(path):
            digest.update(chunk)
    except FileNotFoundError:
        return None
    except Unreadable:
        raise
    except OSError as error:
        raise Unreadable(path, error.strerror or str(error)) from error
    return digest.hexdigest()


def is_taken(tree: Tree, path: str) -> bool:
    """Return whether anything is at a path, be it a broken link."""
    return tree.link(path) is not None or tree.exists(path)


def _verified(chunks: Iterable[bytes], digest: str) -> Iterator[bytes]:
    found = hashlib.sha256()
    for chunk in chunks:
        found.update(chunk)
        yield chunk
    if found.hexdigest() != digest:
        raise OtherContent


def _fingerprint(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
