"""Files that a driver container leaves on its machine.

The names are the vendor's, because people and other tools use them.
"""

from typing import Final

from libs.host.tree import Tree

ROOT: Final = "/run/nvidia/driver"
"""The root file system of the driver container, mounted for the machine and its pods."""

PID: Final = "/run/nvidia/nvidia-driver.pid"
STATE: Final = "/run/nvidia/nvidia-driver.state"
"""The install digest of the loaded driver, written by its container."""

READY: Final = "/run/nvidia/validations/.driver-ctr-ready"
"""Written by the driver container when it is up."""


def installed_digest(tree: Tree) -> str:
    """Return the install digest of the driver that a container loaded since boot; empty: none."""
    return tree.word(STATE) or ""


def clear(tree: Tree) -> None:
    """Remove the files of a driver that is gone, except its root, which is unmounted."""
    for path in (PID, STATE, READY):
        tree.remove(path)
