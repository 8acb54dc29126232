"""Verbs about the division of GPUs by MIG."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from libs.ctl.command import verb
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access
from libs.ctl.output import show as show_answer
from libs.ctl.verbs.queries import Output
from libs.ctl.verbs.upgrade import Force, Nodes, Yes


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
    from libs.ctl import mig
    from libs.ctl.cluster import DEVICES, LABELLED_NODES, open_cluster
    from libs.ctl.views.mig import mig_view

    async def gather() -> tuple[mig.MigNode, ...]:
        async with open_cluster(access) as cluster:
            nodes = await cluster.list(LABELLED_NODES, labels=mig.PRESENT)
            devices = await cluster.list(DEVICES)
            found = mig.mig_nodes((each.metadata for each in nodes), devices)
            if node and not any(each.node == node for each in found):
                await cluster.node(node)
                raise Failure(ExitCode.NOT_FOUND, f"Node {node!r} has no GPUs that Sluice knows of")
        return tuple(each for each in found if node in ("", each.node))

    found = asyncio.run(gather())
    show_answer(found, lambda width, wide: mig_view(found, width=width, wide=wide), format=output)


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
    from libs.ctl import mig

    mig.check_config(config)
    _ask_for(access, config, nodes, force=force, yes=yes)


def clear(access: Access, nodes: Nodes, force: Force = False) -> None:
    """Ask for no division any more; the GPUs stay as they are.

    \b
    sluice mig clear node-7
    """
    _ask_for(access, "", nodes, force=force, yes=True)


def _ask_for(access: Access, config: str, names: Sequence[str], *, force: bool, yes: bool) -> None:
    """Set the label of nodes, or remove it where the configuration is empty."""
    from libs.ctl import mig
    from libs.ctl.cluster import open_cluster
    from libs.ctl.edits import Edit
    from libs.ctl.writes import write_nodes
    from libs.kube import views

    def decide(seen: views.Object) -> Edit:
        return mig.ask_for(seen.metadata, config, force=force)

    async def run() -> None:
        async with open_cluster(access) as cluster:
            await write_nodes(cluster, names, decide, yes=yes)

    asyncio.run(run())
