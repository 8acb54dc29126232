"""Verbs that only read: status, why, plan, events, gpus and version."""

from typing import Annotated

import typer

from libs.ctl.command import verb
from libs.ctl.options import Access
from libs.ctl.output import Format

Output = Annotated[
    Format | None,
    typer.Option("--output", "-o", help="For programs, or with more columns.", show_default=False),
]
Node = Annotated[str, typer.Argument(metavar="NODE", help="Full name of a Node.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to the command."""
    verb(app, "status")(status)
    verb(app, "why")(why)


def status(
    access: Access,
    name: Annotated[str, typer.Argument(metavar="[POOL|NODE]", show_default=False)] = "",
    output: Output = None,
) -> None:
    """Show pools, their rollouts, and the nodes that are not done.

    \b
    sluice status
    sluice status clusterpolicy-cluster-policy
    sluice status node-7 -o json
    """
    from libs.ctl.running import show_status

    show_status(access, name, output)


def why(access: Access, node: Node, output: Output = None) -> None:
    """Tell why a node is not in its wanted state, and who can end the wait.

    \b
    sluice why node-7
    """
    from libs.ctl.running import show_why

    show_why(access, node, output)
