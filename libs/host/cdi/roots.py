"""The root file system that has a driver's files: the machine's own, or a driver container's.

The content of a container's root is not trusted: links are followed within it, and what is found is
a path on the machine that has no links.
"""

import re
from typing import NamedTuple

from libs.host.tree import Tree


class Root(NamedTuple):
    tree: Tree
    path: str
    """On the machine, without links; empty for the machine's own."""

    def on_machine(self, path: str) -> str:
        """Return where a path of this root, which has no links, is on the machine."""
        return f"{self.path}{path}"

    def real(self, path: str) -> str | None:
        """Return a path within this root, without links; None if it is missing."""
        here, real = self.tree.real_path("/"), self.tree.real_path(path)
        return None if here is None or real is None else f"/{real.removeprefix(here).lstrip('/')}"

    def files(self, folder: str, names: re.Pattern[str]) -> dict[str, str]:
        """Return where files with such names are on the machine, by name.

        In a container's root, a link is no file: whoever follows it does so on the machine.
        """
        real = self.real(folder) if self.path else folder
        if real is None:
            return {}
        return {
            name: self.on_machine(f"{real}/{name}")
            for name in filter(names.fullmatch, self.tree.names(real))
            if not self.path or self.tree.link(f"{real}/{name}") is None
        }


def root_of(tree: Tree, path: str) -> Root | None:
    """Return the root at a path of the machine; None if it does not exist. Empty: the machine's."""
    machine, here = tree.real_path("/"), tree.real_path(path or "/")
    if machine is None or here is None:
        return None
    inside = here.removeprefix(machine.rstrip("/")).rstrip("/")
    return Root(Tree(here), inside)


def roots(tree: Tree, driver_root: str) -> tuple[Root, ...]:
    """Return the machine's own root, then the driver's if that is another one."""
    found = (root_of(tree, path) for path in dict.fromkeys(("", driver_root)))
    return tuple(each for each in found if each is not None)
