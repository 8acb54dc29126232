"""What a driver container leaves on its machine, and what of it outlives the driver.

The names are the vendor's: people and other tools know them.
"""

from typing import Final

from libs.host.tree import Tree

ROOT: Final = "/run/nvidia/driver"
"""The driver container's file system, mounted where the machine and its pods see it."""

PID: Final = "/run/nvidia/nvidia-driver.pid"
STATE: Final = "/run/nvidia/nvidia-driver.state"
"""The install digest of the driver that is loaded, as its container wrote it."""

READY: Final = "/run/nvidia/validations/.driver-ctr-ready"
"""The driver container's own word that it is up."""


def installed_digest(tree: Tree) -> str:
    """Of the driver that a container loaded in this boot; empty: nobody said."""
    return tree.word(STATE) or ""


def clear(tree: Tree) -> None:
    """Remove what a driver that is gone has left, but for its root, which is unmounted."""
    for path in (PID, STATE, READY):
        tree.at(path).unlink(missing_ok=True)
