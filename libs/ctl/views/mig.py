"""How GPUs are to be divided, and how they are. Pure."""

from collections.abc import Sequence

from rich.console import Group, RenderableType

from libs.ctl.mig import MigNode, summary
from libs.ctl.views.layout import Column, line, listing

_COLUMNS = (Column("NODE"), Column("ASKED"), Column("STATE"), Column("THERE", folds=True))


def mig_view(nodes: Sequence[MigNode], *, width: int, wide: bool = False) -> RenderableType:
    """Return a row for each node, and where the cause of a failure is told."""
    if not nodes:
        return line("No node has GPUs that Sluice knows of.")
    failed = [each.node for each in nodes if each.state == "failed"]
    told = [line(f"`sluice why {name}` tells why its GPUs are not divided") for name in failed]
    return Group(listing(_COLUMNS, map(_row, nodes), width=width, wide=wide), *told)


def _row(node: MigNode) -> tuple[str, ...]:
    state = "left to others" if node.left_alone else node.state
    return (node.node, node.asked or "nothing", state, summary(node.there) or "not reported")
