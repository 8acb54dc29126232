"""Where the driver's libraries are on a machine."""

import os
from collections.abc import Iterator
from itertools import chain
from typing import Final

from libs.host import driver_folders, ldcache, modules
from libs.host.tree import Tree, Unreadable

NAME: Final = "libnvidia-ml.so.1"
_FOLDERS: Final = (*driver_folders.LIBRARIES, "/usr/lib", "/lib")
_VERSION: Final = "/proc/driver/nvidia/version"


def find_library(tree: Tree, *, setting: str, driver_root: str, name: str = NAME) -> str:
    """Return the library's path in this process's own view; empty for the dynamic linker's choice.

    A driver container's own library goes before that of the machine: it is the one that belongs to
    the loaded driver. Its links are followed within its own root, as the container sees them: what
    they name on the machine may be another driver. `setting` is a path to the library or to its
    folder, and is final.
    """
    if setting:
        return os.path.join(setting, name) if os.path.isdir(setting) else setting
    for root in _roots(tree, driver_root):
        # The folders go before the loader's cache, which may name a library for compatibility.
        folders = (f"{folder}/{name}" for folder in _FOLDERS)
        for path in chain(folders, _cached(Tree(root), name)):
            if found := Tree(root).real_path(path):
                return found
    return ""


def folders_beside(tree: Tree, library: str, *, driver_root: str) -> tuple[str, ...]:
    """Return the folders of the driver that has this library: its parts may be in several."""
    for root in _roots(tree, driver_root):
        if library.startswith(f"{root.rstrip('/')}/"):
            found = (Tree(root).real_path(folder) for folder in driver_folders.LIBRARIES)
            return tuple(dict.fromkeys(filter(None, (os.path.dirname(library), *found))))
    return tuple(filter(None, (os.path.dirname(library),)))


def _roots(tree: Tree, driver_root: str) -> Iterator[str]:
    """Yield the root of a driver container, and that of the machine."""
    for root in (driver_root, "/"):
        if root and (real := tree.real_path(root)):
            yield real


def _cached(tree: Tree, name: str) -> Iterator[str]:
    """Yield where the loader's cache has a library; one that cannot be read has nothing."""
    try:
        cached = ldcache.parse(tree.data(ldcache.PATH) or b"")
    except (ldcache.MalformedCache, Unreadable):
        return
    yield from (each.path for each in cached if each.name == name)


def is_driver_loaded(tree: Tree) -> bool | None:
    """Return whether the kernel has the driver; None where the machine does not show it."""
    if tree.exists(_VERSION) or tree.exists(f"/sys/module/{modules.DRIVER}"):
        return True
    text = modules.listing(tree)
    if text is None:
        return None
    return any(line.startswith(f"{modules.DRIVER} ") for line in text.splitlines())
