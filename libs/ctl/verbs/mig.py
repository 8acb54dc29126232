"""Verbs about the division of GPUs by MIG."""

from typing import Annotated

import typer

from libs.ctl.command import verb
from libs.ctl.options import Access
from libs.ctl.verbs.people import Force, Nodes, Yes
from libs.ctl.verbs.queries import Output


def register(app: typer.Typer) -> None:
    """Add `sluice mig` to the command."""
    mig = typer.Typer(
        help="Show how GPUs are divided by MIG, and ask for another division.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    verb(mig, "show")(show)
    verb(mig, "set")(set_config)
    verb(mig, "clear")(clear)
    app.add_typer(mig, name="mig")


def show(
    access: Access,
    node: Annotated[str, typer.Argument(metavar="[NODE]", show_default=False)] = "",
    output: Output = None,
) -> None:
    """Show what the label of each node asks for, and what is there.

    \b
    sluice mig show
    """
    from libs.ctl.run.mig import show_nodes

    show_nodes(access, node, output)


def set_config(
    access: Access,
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="Name of a configuration.")],
    nodes: Nodes,
    force: Force = False,
    yes: Yes = False,
) -> None:
    """Ask for nodes' GPUs to be divided as a configuration says; pods are evicted for it.

    \b
    sluice mig set all-1g.10gb node-7
    """
    from libs.ctl.run import mig

    mig.set_config(access, config, nodes, force=force, yes=yes)


def clear(access: Access, nodes: Nodes, force: Force = False) -> None:
    """Ask for no division any more; the GPUs stay as they are.

    \b
    sluice mig clear node-7
    """
    from libs.ctl.run.mig import ask_for

    ask_for(access, "", nodes, force=force, yes=True)
