"""A machine's files under a process that ends at one of its writes."""

from pathlib import Path

from libs.host.tree import Tree


class Killed(Exception):
    """The process ends here."""


class KillableTree(Tree):
    """Ends the process at one of its writes; what it had written stays."""

    def __init__(self, root: Path, *, at: int) -> None:
        super().__init__(root)
        self._left = at

    def write(
        self, path: str, data: bytes, *, mode: int = 0o644, owner: tuple[int, int] | None = None
    ) -> None:
        self.step()
        super().write(path, data, mode=mode, owner=owner)

    def append(self, path: str, data: bytes, *, after: int) -> None:
        self.step()
        super().append(path, data, after=after)

    def step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Killed
