"""The modules in a machine's kernel: which are loaded, who uses them, and in which version."""

from collections.abc import Mapping

import msgspec

from libs.host.tree import Tree
from libs.runtime.fatal import Fatal

PROC_MODULES = "/proc/modules"

DRIVER = "nvidia"
"""The module without which none of the others is there."""

UNLOAD_ORDER = (
    "nvidia_modeset",
    "nvidia_uvm",
    "nvidia_peermem",
    "nvidia_fs",
    "nvidia_vgpu_vfio",
    "gdrdrv",
    DRIVER,
)
"""The modules of a driver, in the order in which they can be unloaded."""

NOUVEAU = "nouveau"
"""The kernel's own driver for these GPUs: where it sits, no other can."""


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """One loaded module."""

    name: str
    references: int
    """Who uses it: open device files, and other modules."""
    users: tuple[str, ...] = ()
    """The other modules among them."""
    version: str = ""


def loaded(tree: Tree) -> Mapping[str, Module]:
    """By name; where the kernel does not tell, a `Fatal`: nobody may take that for none."""
    text = tree.text(PROC_MODULES)
    if text is None:
        raise Fatal(
            f"{PROC_MODULES} cannot be read below {tree.root}: mount the host's"
            f" root there, with /proc"
        )
    rows = (line.split() for line in text.splitlines())
    return {row[0]: _module(tree, row) for row in rows if len(row) >= 4 and row[2].isdigit()}


def _module(tree: Tree, row: list[str]) -> Module:
    name, _, references, users = row[:4]
    return Module(
        name=name,
        references=int(references),
        users=tuple(user for user in users.split(",") if user and user != "-"),
        version=tree.word(f"/sys/module/{name}/version") or "",
    )
