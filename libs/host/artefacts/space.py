"""How much of a machine's disk an artefact may take."""

from typing import Final

from libs.host.artefacts.members import ArtefactError
from libs.host.tree import Tree

_RESERVE: Final = 1 << 30
"""Bytes that stay free where artefacts are unpacked, or a tenth of a smaller file system: the
machine may be in service."""


def require_space(tree: Tree, folder: str, wanted: int) -> None:
    """Raise `ArtefactError` where a folder's file system has no room for more bytes."""
    free, size = tree.free_bytes(folder), tree.size_of_file_system(folder)
    if free is None or size is None:
        return
    reserve = min(_RESERVE, size // 10)
    if free - wanted < reserve:
        store = folder.rpartition("/")[0]
        raise ArtefactError(
            f"it does not fit: {free >> 20} MiB are free in {store}, of which {reserve >> 20} stay"
            " free; free disk space on this machine"
        )
