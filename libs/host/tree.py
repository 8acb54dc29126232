"""A machine's files as they are read: everything below one root, and nothing outside of it.

In a pod the host's root is mounted at `/host`, in a test it is a folder. A path is written as the
machine itself would write it; a link of the machine is followed within its root. What cannot be
read is not there: the kernel's own files come and go while one looks. But where it is we who cannot
look, that says nothing of what is there: it is an error.
"""

import errno
import os
from pathlib import Path

RESOURCE_ERRNOS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""No more files, or no more memory, for whoever looks."""

MAX_LINKS = 32
"""So many links are followed, one after another, before they are taken for a circle."""


class Tree:
    """A machine's files, below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._root = str(root).rstrip("/")

    def at(self, path: str) -> Path:
        """Where that file is for us, every link in it followed within the root."""
        return Path(self._resolved(path, last=True))

    def text(self, path: str) -> str | None:
        """The content as text, or None if there is nothing to read."""
        data = self.data(path)
        return None if data is None else data.decode(errors="replace")

    def word(self, path: str) -> str | None:
        """The content of a file that holds one value."""
        text = self.text(path)
        return None if text is None else text.strip()

    def data(self, path: str) -> bytes | None:
        """The content, or None if there is nothing to read."""
        try:
            with open(self._resolved(path, last=True), "rb") as file:
                return file.read()
        except OSError as error:
            _raise_if_ours(error)
            return None

    def names(self, path: str) -> tuple[str, ...]:
        """What is in a folder, in order; nothing, if there is none."""
        try:
            return tuple(sorted(os.listdir(self._resolved(path, last=True))))
        except OSError as error:
            _raise_if_ours(error)
            return ()

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder, at the end of whatever links."""
        return os.path.exists(self._resolved(path, last=True))

    def link(self, path: str) -> str | None:
        """What a link says, as it says it; None if it is no link."""
        try:
            return os.readlink(self._resolved(path, last=False))
        except OSError as error:
            _raise_if_ours(error)
            return None

    def modified_at(self, path: str) -> float | None:
        """When it was written last, in unix seconds; None if it is not there."""
        try:
            return os.stat(self._resolved(path, last=True)).st_mtime
        except OSError as error:
            _raise_if_ours(error)
            return None

    def free_bytes(self, path: str) -> int | None:
        """Bytes that may still be written to the file system there; None if it is not there."""
        try:
            about = os.statvfs(self._resolved(path, last=True))
        except OSError as error:
            _raise_if_ours(error)
            return None
        return about.f_bavail * about.f_frsize

    def _resolved(self, path: str, *, last: bool) -> str:
        """`path` below the root; `last` says whether a link at its very end is followed too.

        Plain strings: an agent looks at thousands of these files, every few seconds.
        """
        waiting = _parts(path)
        gone: list[str] = []
        links = 0
        while waiting:
            name = waiting.pop(0)
            if name == "..":
                gone = gone[:-1]
                continue
            gone.append(name)
            if (waiting or last) and links < MAX_LINKS:
                here = "/".join((self._root, *gone))
                if os.path.islink(here):
                    links += 1
                    target = os.readlink(here)
                    gone = [] if target.startswith("/") else gone[:-1]
                    waiting = [*_parts(target), *waiting]
        return "/".join((self._root, *gone))


def _raise_if_ours(error: OSError) -> None:
    if error.errno in RESOURCE_ERRNOS:
        raise error


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
