"""Which paths an artefact may bring to a machine. Pure."""

import posixpath
from collections.abc import Iterator
from typing import Final

LONGEST_PATH: Final = 4095
_LONGEST_NAME: Final = 255


def refusal(path: str) -> str:
    """Return why a file cannot have a path; empty if it can."""
    if why := target_refusal(path):
        return why
    if path.startswith("//") or posixpath.normpath(path) != path:
        return "is not written in its shortest form"
    if any(len(name.encode()) > _LONGEST_NAME for name in path.split("/")):
        return f"has a name of more than {_LONGEST_NAME} bytes"
    return ""


def target_refusal(target: str) -> str:
    """Return why a link cannot have a target; empty if it can."""
    if not _is_utf8(target):
        return "is not UTF-8"
    if "\0" in target:
        return "has a NUL byte"
    if len(target.encode()) > LONGEST_PATH:
        return f"is longer than {LONGEST_PATH} bytes"
    return ""


def above(path: str) -> Iterator[str]:
    """Yield the folders in which a path is, without the root."""
    while path := path.rpartition("/")[0]:
        yield path


class PathSet:
    """Paths of which each is taken once, and none is below another one."""

    def __init__(self) -> None:
        self._paths: set[str] = set()
        self._folders: set[str] = set()

    def add(self, path: str) -> str:
        """Add a path; return why it contradicts an earlier one, or an empty text."""
        if path in self._paths:
            return "is in the artefact twice"
        if path in self._folders:
            return "is a folder in the artefact, and a file or a link"
        folders = tuple(above(path))
        for folder in folders:
            if folder in self._paths:
                return f"is below {folder}, which is a file or a link of the artefact"
        self._paths.add(path)
        self._folders.update(folders)
        return ""


def sendable(text: str) -> str:
    """Return a text such that it can be sent, whatever names are in it."""
    return text.encode(errors="backslashreplace").decode()


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
