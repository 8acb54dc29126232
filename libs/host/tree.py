"""Reads of a machine's files, confined to one root.

In a pod the host's root is mounted at `/host`, in a test it is a folder. Paths are the machine's
own; symbolic links are followed within the root. An unreadable file counts as missing, because
files of the kernel come and go while they are read. Only a lack of resources in this process is an
error, because it tells nothing about the file.
"""

import errno
import os
from pathlib import Path

RESOURCE_ERRNOS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""This process has too many open files, or no memory."""

MAX_LINKS = 32
"""After this many links in one path, the rest is not followed: they form a cycle."""


class Tree:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._root = str(root).rstrip("/")

    def at(self, path: str) -> Path:
        """Return the path in this process, with every link followed within the root."""
        return Path(self._resolved(path, last=True))

    def text(self, path: str) -> str | None:
        data = self.data(path)
        return None if data is None else data.decode(errors="replace")

    def word(self, path: str) -> str | None:
        """Return the stripped content of a file that holds one value."""
        text = self.text(path)
        return None if text is None else text.strip()

    def data(self, path: str) -> bytes | None:
        try:
            with open(self._resolved(path, last=True), "rb") as file:
                return file.read()
        except OSError as error:
            _raise_if_out_of_resources(error)
            return None

    def names(self, path: str) -> tuple[str, ...]:
        """Return the sorted names in a folder; empty if it is missing."""
        try:
            return tuple(sorted(os.listdir(self._resolved(path, last=True))))
        except OSError as error:
            _raise_if_out_of_resources(error)
            return ()

    def exists(self, path: str) -> bool:
        return os.path.exists(self._resolved(path, last=True))

    def link(self, path: str) -> str | None:
        """Return the unresolved target of a link; None if the path is not a link."""
        try:
            return os.readlink(self._resolved(path, last=False))
        except OSError as error:
            _raise_if_out_of_resources(error)
            return None

    def modified_at(self, path: str) -> float | None:
        """Return the modification time in unix seconds; None if the file is missing."""
        try:
            return os.stat(self._resolved(path, last=True)).st_mtime
        except OSError as error:
            _raise_if_out_of_resources(error)
            return None

    def free_bytes(self, path: str) -> int | None:
        """Return the free space of the file system at a path; None if the path is missing."""
        try:
            stats = os.statvfs(self._resolved(path, last=True))
        except OSError as error:
            _raise_if_out_of_resources(error)
            return None
        return stats.f_bavail * stats.f_frsize

    def _resolved(self, path: str, *, last: bool) -> str:
        """Resolve `path` below the root; with `last`, follow a link at its very end too.

        Uses plain strings for speed: an agent reads thousands of these files every few seconds.
        """
        pending = _parts(path)
        resolved: list[str] = []
        links = 0
        while pending:
            name = pending.pop(0)
            if name == "..":
                resolved = resolved[:-1]
                continue
            resolved.append(name)
            if (pending or last) and links < MAX_LINKS:
                current = "/".join((self._root, *resolved))
                if os.path.islink(current):
                    links += 1
                    target = os.readlink(current)
                    resolved = [] if target.startswith("/") else resolved[:-1]
                    pending = [*_parts(target), *pending]
        return "/".join((self._root, *resolved))


def _raise_if_out_of_resources(error: OSError) -> None:
    if error.errno in RESOURCE_ERRNOS:
        raise error


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
