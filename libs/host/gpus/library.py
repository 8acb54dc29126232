"""Where the driver's libraries are on a machine."""

import os
from typing import Final

from libs.host import modules
from libs.host.tree import Tree

NAME: Final = "libnvidia-ml.so.1"
_FOLDERS: Final = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib64",
    "/lib",
)
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
    roots = (tree.real_path(root) for root in (driver_root, "/") if root)
    for root in filter(None, roots):
        for folder in _FOLDERS:
            if path := Tree(root).real_path(f"{folder}/{name}"):
                return path
    return ""


def is_driver_loaded(tree: Tree) -> bool | None:
    """Return whether the kernel has the driver; None where the machine does not show it."""
    if tree.exists(_VERSION) or tree.exists(f"/sys/module/{modules.DRIVER}"):
        return True
    text = modules.listing(tree)
    if text is None:
        return None
    return any(line.startswith(f"{modules.DRIVER} ") for line in text.splitlines())
