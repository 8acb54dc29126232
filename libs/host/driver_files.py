"""Files that a driver container leaves on its machine.

The names are the vendor's, because people and other tools use them.
"""

from collections.abc import Mapping
from typing import Final

from libs.host.tree import Tree

ROOT: Final = "/run/nvidia/driver"
"""The root file system of the driver container, mounted for the machine and its pods."""

PID: Final = "/run/nvidia/nvidia-driver.pid"
STATE: Final = "/run/nvidia/nvidia-driver.state"
"""The install digest of the loaded driver, written by its container."""

READY: Final = "/run/nvidia/validations/.driver-ctr-ready"
"""Written by the driver container when it is up."""

DAEMONS: Final = "/run/nvidia/validations/.driver-daemons-status"
"""`NotReady` or `Ready`, written by newer driver containers: what their daemons say."""

DAEMON_PIDS: Final[Mapping[str, str]] = {
    "/run/nvidia-fabricmanager/nv-fabricmanager.pid": "nv-fabricmanager",
    "/run/nvidia-fabricmanager/nvlsm.pid": "nvlsm",
    "/run/nvidia-topologyd/nvidia-topologyd.pid": "nvidia-topologyd",
}
"""The pid files of daemons that a driver container starts, in folders of the machine, and the
daemons' programs.
"""

_COMM_LENGTH: Final = 15
"""The kernel keeps so many characters of a program's name."""


def installed_digest(tree: Tree) -> str:
    """Return the install digest of the driver that a container loaded since boot; empty: none."""
    return tree.word(STATE) or ""


def forget_readiness(tree: Tree) -> None:
    """Remove what an earlier container said about itself: it may have ended without doing so.

    A driver container that writes no status of its daemons would never count as started because of
    an old `NotReady`.
    """
    for path in (READY, DAEMONS):
        tree.remove(path)


def clear(tree: Tree) -> None:
    """Remove the files of a driver that is gone, except its root, which is unmounted."""
    for path in (PID, STATE):
        tree.remove(path)
    forget_readiness(tree)
    for path, program in DAEMON_PIDS.items():
        if not _runs(tree, path, program):
            tree.remove(path)


def _runs(tree: Tree, path: str, program: str) -> bool:
    """Whether the process in a pid file is the daemon.

    A driver container sends SIGTERM to the pid in such a file, and shares the machine's pids: an
    old file may name a process of somebody else by now.
    """
    pid = tree.word(path) or ""
    comm = tree.word(f"/proc/{pid}/comm") if pid.isascii() and pid.isdigit() else None
    return comm == program[:_COMM_LENGTH]
