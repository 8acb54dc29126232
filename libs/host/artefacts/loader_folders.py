"""Whether programs of the machine find the driver's libraries once an artefact is placed.

Some packages, such as Debian's, bring libraries into a folder of their own, and their scripts make
the links by which a loader finds them. No script runs here: without this check a node would be
drained for a driver that nothing can use.
"""

import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from typing import Final

from libs.host.artefacts import paths
from libs.host.artefacts import system as systems
from libs.host.artefacts.kernel_modules import Problem
from libs.host.artefacts.store import Index, Placed
from libs.host.confined import MAX_LINKS
from libs.host.tree import Tree

_NEEDED: Final = ("libnvidia-ml.so.1", "libcuda.so.1")


def real_paths(tree: Tree) -> Callable[[str], str]:
    """Return what gives a path on this machine without links, its last name aside.

    Each folder is looked up once: an artefact has many files in few folders.
    """
    root = (tree.real_path("/") or "").rstrip("/")
    known: dict[str, str] = {}

    def real_folder(folder: str) -> str:
        if folder not in known:
            found = tree.real_path(folder or "/")
            if found is None:
                above, _, name = folder.rpartition("/")
                found = f"{root}{real_folder(above)}/{name}"
            known[folder] = found.removeprefix(root).rstrip("/")
        return known[folder]

    def real_path(path: str) -> str:
        folder, _, name = path.rpartition("/")
        return f"{real_folder(folder)}/{name}"

    return real_path


def problems(tree: Tree, index: Index, stays: Callable[[str], bool]) -> Iterator[Problem]:
    """Yield what makes the libraries useless; `stays`: whether the machine keeps a file."""
    placed = _Placed(tree, index, stays)
    folders = systems.loader_folders(tree)
    missing = [name for name in _NEEDED if not any(placed.has_file(f"{f}/{name}") for f in folders)]
    if missing:
        here = systems.library_folder(tree, os.uname().machine)
        yield Problem(
            code="libraries",
            message=paths.sendable(
                f"no program of this machine would find {' and '.join(missing)}: the artefact"
                f" {_instead(index, missing, folders)}"
            ),
            remedy="packages whose scripts make links cannot be used alone, because no script runs:"
            f" add a tar that has links to them in {here}, or take the vendor's .run file",
        )


def _instead(index: Index, missing: list[str], folders: tuple[str, ...]) -> str:
    """Return what the artefact has of the missing libraries."""
    found = (each.path for each in index.files if each.path.rpartition("/")[2] in missing)
    where = sorted({path.rpartition("/")[0] for path in found})
    if not where:
        return "does not have them"
    if any(folder in folders for folder in where):
        return f"has links in {where[0]} that lead to no file"
    return f"has them in {where[0]}, where no loader looks"


class _Placed:
    """The files of a machine as they are once an artefact is placed."""

    def __init__(self, tree: Tree, index: Index, stays: Callable[[str], bool]) -> None:
        self._tree = tree
        self._stays = stays
        self._real = real_paths(tree)
        self._by_path: dict[str, Placed] = {self._real(each.path): each for each in index.files}

    def has_file(self, path: str) -> bool:
        """Return whether a path, or what its links lead to, is a file."""
        for _ in range(MAX_LINKS):
            real = self._real(path)
            placed = self._by_path.get(real)
            if placed is None:
                status = self._tree.status(path) if self._stays(path) else None
                return status is not None and stat.S_ISREG(status.st_mode)
            if not placed.link:
                return True
            # A link that begins at the root stays as it is when it is joined.
            path = posixpath.normpath(posixpath.join(posixpath.dirname(real), placed.link))
        return False
