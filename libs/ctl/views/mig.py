"""How GPUs are to be divided, and how they are. Pure."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType

from libs.ctl.mig import MigNode, summary
from libs.ctl.views.layout import Column, line, listing

_COLUMNS: Final[Sequence[Column[MigNode]]] = (
    Column("NODE", lambda node: node.node),
    Column("ASKED", lambda node: node.asked or "nothing"),
    Column("STATE", lambda node: "left to others" if node.left_alone else node.state),
    Column("THERE", lambda node: summary(node.there) or "not reported", folds=True),
)


def mig_view(nodes: Sequence[MigNode], *, width: int, wide: bool = False) -> RenderableType:
    """Return a row for each node, and where the cause of a failure is told."""
    if not nodes:
        return line("No node has GPUs that Sluice knows of.")
    failed = [each.node for each in nodes if each.state == "failed"]
    told = [line(f"`sluice why {name}` tells why its GPUs are not divided") for name in failed]
    return Group(listing(_COLUMNS, nodes, width=width, wide=wide), *told)
