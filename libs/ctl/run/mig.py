"""Run `sluice mig`: through Kubernetes alone."""

import asyncio
from collections.abc import Sequence

from libs.ctl import mig
from libs.ctl.cluster import DEVICES, LABELLED_NODES, open_cluster
from libs.ctl.edits import Edit
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access
from libs.ctl.output import Format, show
from libs.ctl.run.upgrade import write_nodes
from libs.kube import views


def show_nodes(access: Access, name: str, output: Format | None) -> None:
    """Show what labels ask for and what is there, of all nodes with GPUs or of one."""
    from libs.ctl.views.mig import mig_view

    found = asyncio.run(_gather(access, name))
    show(found, lambda width, wide: mig_view(found, width=width, wide=wide), format=output)


async def _gather(access: Access, name: str) -> tuple[mig.MigNode, ...]:
    async with open_cluster(access) as cluster:
        nodes = await cluster.list(LABELLED_NODES, labels=mig.PRESENT)
        devices = await cluster.list(DEVICES)
        found = mig.mig_nodes((each.metadata for each in nodes), devices)
        if name and not any(each.node == name for each in found):
            await cluster.node(name)
            raise Failure(ExitCode.NOT_FOUND, f"Node {name!r} has no GPUs that Sluice knows of")
    return tuple(each for each in found if name in ("", each.node))


def set_config(
    access: Access, config: str, names: Sequence[str], *, force: bool, yes: bool
) -> None:
    """Set the label of nodes; refuse what cannot be its value."""
    mig.check_config(config)
    ask_for(access, config, names, force=force, yes=yes)


def ask_for(access: Access, config: str, names: Sequence[str], *, force: bool, yes: bool) -> None:
    """Set the label of nodes, or remove it where the configuration is empty."""

    def decide(seen: views.Object) -> Edit:
        return mig.ask_for(seen.metadata, config, force=force)

    async def run() -> None:
        async with open_cluster(access) as cluster:
            await write_nodes(cluster, names, decide, yes=yes)

    asyncio.run(run())
