"""A machine's files, confined to one root.

In a pod the host's root is mounted at `/host`, in a test it is a folder. Paths are the machine's
own. Symbolic links are followed within the root, and by the kernel or by file descriptors, so that
no link leads outside, not even one that is replaced meanwhile.

A missing file is a value: `None`, no names, `False`. A file that is there and cannot be read raises
`Unreadable`, because it must never be taken for a missing one (docs/invariants.md#i6).
"""

import errno
import os
import re
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, TypeVar

import msgspec

from libs.host.confined import MAX_LINKS, open_below
from libs.runtime.files import replace_in, write_all

T = TypeVar("T")

MAX_BYTES: Final = 4 << 20
"""The largest file that is read. `/proc/cpuinfo` of a machine with 1,024 threads has 2 MiB."""
MAX_NAMES: Final = 100_000
"""The most names that are read from a folder."""
_CHUNK: Final = 1 << 20
_UNFINISHED: Final = ".unfinished"
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")

_MISSING: Final = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ESRCH))
"""ESRCH: files in `/proc` of a process that has ended."""
_RESOURCES: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""This process lacks resources, which says nothing about the file."""
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
"""Without O_NONBLOCK, opening a FIFO waits for a writer."""


class Unreadable(OSError):
    """A file or folder exists but cannot be read; nothing is known about its content."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(errno.EIO, reason, path)

    def __str__(self) -> str:
        return f"{self.filename} cannot be read: {self.strerror}"


class Tree:
    def __init__(self, root: "str | os.PathLike[str]") -> None:
        self.root = os.fspath(root)

    def read_text(self, path: str) -> str | None:
        data = self.data(path)
        return None if data is None else data.decode(errors="replace")

    def word(self, path: str) -> str | None:
        """Return the stripped content of a file that holds one value."""
        text = self.read_text(path)
        return None if text is None else text.strip()

    def data(self, path: str) -> bytes | None:
        with self._reading(path), self._opened(path, _READ) as file:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise Unreadable(path, "it is not a regular file")
            data = b""
            while chunk := os.read(file, min(1 << 16, MAX_BYTES + 1 - len(data))):
                data += chunk
            if len(data) > MAX_BYTES:
                raise Unreadable(path, f"it is larger than {MAX_BYTES >> 20} MiB")
            return data
        return None

    def names(self, path: str) -> tuple[str, ...]:
        """Return the sorted names in a folder; empty if it is missing.

        A name that is not UTF-8 is left out: nothing that Sluice looks for has one.
        """
        with self._reading(path), self._opened(path, _READ | os.O_DIRECTORY) as folder:
            names: list[str] = []
            with os.scandir(folder) as entries:
                for entry in entries:
                    if len(names) == MAX_NAMES:
                        raise Unreadable(path, f"it has more than {MAX_NAMES} entries")
                    names.append(entry.name)
            return tuple(sorted(name for name in names if name.isascii() or _is_utf8(name)))
        return ()

    def exists(self, path: str) -> bool:
        return self.status(path) is not None

    def link(self, path: str) -> str | None:
        """Return the unresolved target of a link; None if the path is not a link."""
        with self._reading(path), self._opened(path, os.O_PATH | os.O_NOFOLLOW) as file:
            if stat.S_ISLNK(os.fstat(file).st_mode):
                return _readlink("", file)
        return None

    def links(self, path: str) -> tuple[str, ...]:
        """Return the unresolved targets of all links in a folder; empty if it is missing.

        It costs a tenth of `link` for each name.
        """
        with self._reading(path), self._opened(path, _READ | os.O_DIRECTORY) as folder:
            targets: list[str] = []
            for name in os.listdir(folder):
                try:
                    targets.append(_readlink(name, folder))
                except OSError as error:
                    if error.errno not in (*_MISSING, errno.EINVAL):
                        raise
            return tuple(targets)
        return ()

    def modified_at(self, path: str) -> float | None:
        """Return the modification time in unix seconds; None if the file is missing."""
        status = self.status(path)
        return None if status is None else status.st_mtime

    def keep_modified_at(self, path: str) -> None:
        """Set the modification time of a folder to what it is; a missing one is fine.

        sysfs has a time of its own for each time that it is asked, until one was set.
        """
        with (
            suppress(FileNotFoundError),
            self._opened(path, os.O_RDONLY | os.O_DIRECTORY) as folder,
        ):
            status = os.fstat(folder)
            os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))

    def mode(self, path: str) -> int | None:
        """Return the permissions of a file; None if it is missing."""
        status = self.status(path)
        return None if status is None else stat.S_IMODE(status.st_mode)

    def owner(self, path: str) -> tuple[int, int] | None:
        """Return the user and the group of a file; None if it is missing."""
        status = self.status(path)
        return None if status is None else (status.st_uid, status.st_gid)

    def is_folder(self, path: str) -> bool:
        status = self.status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def free_bytes(self, path: str) -> int | None:
        """Return the free space of the file system at a path; None if the path is missing."""
        with self._reading(path), self._opened(path, os.O_PATH) as file:
            stats = os.fstatvfs(file)
            return stats.f_bavail * stats.f_frsize
        return None

    def size_of_file_system(self, path: str) -> int | None:
        """Return the bytes of the file system at a path; None if the path is missing."""
        with self._reading(path), self._opened(path, os.O_PATH) as file:
            stats = os.fstatvfs(file)
            return stats.f_blocks * stats.f_frsize
        return None

    def is_read_only(self, path: str) -> bool:
        """Return whether the file system at a path is mounted such that nothing can be written."""
        with self._reading(path), self._opened(path, os.O_PATH) as file:
            return bool(os.fstatvfs(file).f_flag & os.ST_RDONLY)
        return False

    @contextmanager
    def reader(self, path: str) -> Generator[BinaryIO]:
        """Open a regular file of any size. Raise `Unreadable`, or `FileNotFoundError`."""
        try:
            with self._opened(path, _READ) as file:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise Unreadable(path, "it is not a regular file")
                with os.fdopen(os.dup(file), "rb") as content:
                    yield content
        except NotADirectoryError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error

    def chunks(self, path: str) -> Generator[bytes]:
        """Yield the content of a regular file of any size."""
        with self.reader(path) as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def real_path(self, path: str) -> str | None:
        """Return the path in this process, without links; None if it is missing."""
        with self._reading(path), self._opened(path, os.O_PATH) as file:
            return os.readlink(f"/proc/self/fd/{file}")
        return None

    def write(
        self, path: str, data: bytes, *, mode: int = 0o644, owner: tuple[int, int] | None = None
    ) -> None:
        """Replace a file atomically, also with respect to a power failure.

        The target of a link is replaced, within the root. Missing folders are made.
        """
        self.write_chunks(path, (data,), mode=mode, owner=owner)

    def write_chunks(
        self,
        path: str,
        chunks: Iterable[bytes],
        *,
        mode: int = 0o644,
        owner: tuple[int, int] | None = None,
    ) -> None:
        """Replace a file like `write`, by content that need not fit into memory."""
        folder, name = self._split(self._follow(path))
        self.make_folders(folder)
        with self._opened(folder, os.O_RDONLY | os.O_DIRECTORY) as parent:
            replace_in(parent, name, chunks, unfinished=_unfinished(name), mode=mode, owner=owner)

    def remove_unfinished(self, path: str) -> None:
        """Remove what a `write` to this path left behind when the process was killed."""
        folder, name = self._split(self._follow(path))
        self.remove(f"{folder}/{_unfinished(name)}")

    def append(self, path: str, data: bytes, *, after: int) -> None:
        """Write durably behind the first `after` bytes of a file; what followed them is cut off."""
        folder, name = self._split(path)
        self.make_folders(folder)
        with self._opened(folder, os.O_RDONLY | os.O_DIRECTORY) as parent:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(name, flags, 0o600, dir_fd=parent)
            try:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise Unreadable(path, "it is not a regular file")
                os.ftruncate(file, after)
                os.lseek(file, after, os.SEEK_SET)
                write_all(file, data)
                os.fsync(file)
            finally:
                os.close(file)
            os.fsync(parent)

    def make_link(self, path: str, target: str) -> None:
        """Make a symbolic link where nothing is, durably. The folder must exist."""
        folder, name = self._split(path)
        with self._opened(folder, os.O_RDONLY | os.O_DIRECTORY) as parent:
            os.symlink(target, name, dir_fd=parent)
            os.fsync(parent)

    def make_device(self, path: str, major: int, minor: int, *, mode: int) -> None:
        """Make the file of a character device where nothing is. Missing folders are made."""
        folder, name = self._split(path)
        self.make_folders(folder)
        with self._opened(folder, os.O_RDONLY | os.O_DIRECTORY) as parent:
            os.mknod(name, stat.S_IFCHR | mode, os.makedev(major, minor), dir_fd=parent)
            os.chmod(name, mode, dir_fd=parent)  # whatever this process's umask is

    def make_folders(self, path: str) -> None:
        """Make a folder and all above it; those that exist stay as they are."""
        if self.is_folder(path):
            return
        above, name = self._split(path)
        self.make_folders(above)
        with self._opened(above, os.O_PATH | os.O_DIRECTORY) as parent:
            try:
                os.mkdir(name, dir_fd=parent)
            except FileExistsError:
                if not self.is_folder(path):
                    raise

    def remove(self, path: str) -> None:
        """Remove a file or a link, never what a link leads to; a missing one is fine."""
        self._remove(path, folder=False)

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder; a missing one is fine."""
        self._remove(path, folder=True)

    def _remove(self, path: str, *, folder: bool) -> None:
        above, name = self._split(path)
        with (
            suppress(FileNotFoundError),
            self._opened(above, os.O_PATH | os.O_DIRECTORY) as parent,
        ):
            (os.rmdir if folder else os.unlink)(name, dir_fd=parent)

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of what a path leads to; None if it is missing."""
        with self._reading(path), self._opened(path, os.O_PATH) as file:
            return os.fstat(file)
        return None

    def _follow(self, path: str) -> str:
        """Return the path that a link leads to, and the links that follow it."""
        for _ in range(MAX_LINKS):
            target = self.link(path)
            if target is None:
                return path
            path = target if target.startswith("/") else f"{self._split(path)[0]}/{target}"
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def _split(self, path: str) -> tuple[str, str]:
        folder, _, name = path.rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            raise ValueError(f"{path!r} names no file")
        return folder or "/", name

    @contextmanager
    def _opened(self, path: str, flags: int) -> Generator[int]:
        root = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            file = open_below(root, path, flags | os.O_CLOEXEC)
        finally:
            os.close(root)
        try:
            yield file
        finally:
            os.close(file)

    @contextmanager
    def _reading(self, path: str) -> Generator[None]:
        """Suppress the errors of a missing file; make `Unreadable` of all that concern the file."""
        try:
            yield
        except Unreadable:
            raise
        except OSError as error:
            if error.errno in _RESOURCES:
                raise
            if error.errno not in _MISSING:
                raise Unreadable(path, error.strerror or str(error)) from error


def read_json(tree: Tree, path: str, kind: type[T]) -> T | None:
    """Return the value of a JSON file; None where it is missing, unreadable or malformed.

    For files whose loss costs a repetition: whoever must not go on without one asks for `data`.
    """
    try:
        data = tree.data(path)
        return None if data is None else msgspec.json.decode(data, type=kind)
    except (Unreadable, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def number(text: str | None) -> int | None:
    """Return the value of a decimal number as the kernel writes it; None for anything else."""
    found = _NUMBER.fullmatch(text.strip()) if text else None
    return int(found[0]) if found else None


def is_unfinished(name: str) -> bool:
    """Return whether a file is what a killed process left of a `write`."""
    return name.startswith(".") and name.endswith(_UNFINISHED)


def _unfinished(name: str) -> str:
    return f".{name}{_UNFINISHED}"


def _readlink(name: str, folder: int) -> str:
    """Return the target of a link; raise EINVAL for anything else."""
    target = os.readlink(name, dir_fd=folder)
    return target if target.isascii() else os.fsencode(target).decode(errors="replace")


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
