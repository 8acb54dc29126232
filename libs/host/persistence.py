"""The socket of nvidia-persistenced, where NVML of this process looks for it.

The daemon keeps GPUs open. NVML asks it to let go of one that must be reset, such as for the MIG
mode of Ampere, and finds it by the path of its socket alone. Of a driver container that path is
below the driver's root, which comes and goes, so a link leads there.
"""

import os
import stat
from pathlib import Path
from typing import Final

from libs.host.tree import Tree

SOCKET: Final = "/run/nvidia-persistenced/socket"
"""Below the driver's root."""
FOLDER: Final = Path("/var/run/nvidia-persistenced")
"""Where NVML looks; a pod that wants it has a folder of its own there."""


def lead_to_socket(tree: Tree, *, driver_root: str, folder: Path = FOLDER) -> None:
    """Let NVML find the daemon of the driver container, or that of the machine.

    Nothing happens without the folder, and none but a link in it is replaced: elsewhere than in
    such a pod it is the daemon's own.
    """
    link = folder / SOCKET.rpartition("/")[2]
    if not folder.is_dir() or (os.path.lexists(link) and not link.is_symlink()):
        return
    target = next(filter(None, (_socket(tree, root) for root in (driver_root, "/"))), None)
    if link.is_symlink() and target == os.readlink(link):
        return
    link.unlink(missing_ok=True)
    if target is not None:
        link.symlink_to(target)


def _socket(tree: Tree, root: str) -> str | None:
    """Return where a root's socket is in this process's view."""
    here = tree.real_path(root) if root else None
    if here is None:
        return None
    status = Tree(here).status(SOCKET)
    return Tree(here).real_path(SOCKET) if status and stat.S_ISSOCK(status.st_mode) else None
