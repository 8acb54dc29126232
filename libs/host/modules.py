"""The loaded kernel modules of a machine, with their versions and users."""

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from libs.host.tree import Tree, number
from libs.runtime.fatal import Fatal

PROC_MODULES = "/proc/modules"
_PROC_VERSION = "/proc/version"

DRIVER = "nvidia"
"""The module that all the others depend on."""
_DRIVER_FOLDER = f"/sys/module/{DRIVER}"

UNLOAD_ORDER = (
    "nvidia_drm",
    "nvidia_modeset",
    "nvidia_uvm",
    "nvidia_peermem",
    "nvidia_fs",
    "nvidia_vgpu_vfio",
    "gdrdrv",
    DRIVER,
)
"""The modules of a driver, in the order in which they must be unloaded."""

NOUVEAU = "nouveau"
"""The kernel's own driver for these GPUs; while it is loaded, no other can be."""


class Module(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    references: int
    """One for each other module that uses it, and some for each open device file. How many is up to
    the module: the vendor's takes three for `/dev/nvidiactl`, so no files can be counted by it."""
    users: tuple[str, ...] = ()
    """The other modules among the users."""
    version: str = ""


def loaded(tree: Tree) -> Mapping[str, Module]:
    """Return the loaded modules by name; raise `Fatal` if the list cannot be read."""
    text = listing(tree)
    if text is None:
        raise Fatal(
            f"{PROC_MODULES} cannot be read below {tree.root}: mount the host's root there, with"
            " /proc"
        )
    rows = (line.split() for line in text.splitlines())
    return {row[0]: _module(tree, row) for row in rows if len(row) >= 4}


def listing(tree: Tree) -> str | None:
    """Return the kernel's own list of its modules; None if the host's /proc is not there.

    A kernel that was built without modules has no list, and so none is loaded.
    """
    text = tree.read_text(PROC_MODULES)
    return "" if text is None and tree.exists(_PROC_VERSION) else text


def driver_loaded_at(tree: Tree) -> float:
    """Return when the driver was loaded, in unix seconds; 0 if it is not.

    The kernel tells when it was first asked, and tells another time once it has dropped the answer
    for lack of memory, unless `keep_load_time` was called.
    """
    return round(tree.modified_at(_DRIVER_FOLDER) or 0.0, 3)


def keep_load_time(tree: Tree) -> None:
    """Let the kernel keep what `driver_loaded_at` returns until the driver is unloaded.

    Needs root, and a /sys that may be written; without them, nothing is kept.
    """
    with suppress(OSError):
        tree.keep_modified_at(_DRIVER_FOLDER)


def _module(tree: Tree, row: list[str]) -> Module:
    name, _, references, users = row[:4]
    return Module(
        name=name,
        references=number(references) or 0,
        users=tuple(user for user in users.split(",") if user and user != "-"),
        version=tree.word(f"/sys/module/{name}/version") or "",
    )
