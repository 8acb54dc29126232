"""A simulated machine's files as its agents read them: on a disk of that machine's own size."""

from pathlib import Path

from libs.host.tree import Tree


class DiskTree(Tree):
    """They lie on this computer's disk, and how full that one is does not matter."""

    def __init__(self, root: Path, *, free: int) -> None:
        super().__init__(root)
        self._free = free

    def free(self, path: str) -> int | None:
        """Bytes that may still be written there; None if it is not there."""
        return self._free if self.exists(path) else None
