"""`sluice lease`: people take nodes and return them, through Kubernetes alone."""

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from libs.ctl.command import verb
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access
from libs.ctl.verbs.upgrade import Nodes, Yes

if TYPE_CHECKING:
    from libs.ctl.cluster import Cluster
    from libs.kube import views


def register(app: typer.Typer) -> None:
    """Add `sluice lease` to the command."""
    lease = typer.Typer(
        help="Take a node for work on its machine, and return it; through Kubernetes alone.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    verb(lease, "take")(take)
    verb(lease, "return")(give_back)
    app.add_typer(lease, name="lease")


def take(
    access: Access,
    nodes: Nodes,
    reason: Annotated[str, typer.Option(help="What you do on the nodes, for others to read.")],
) -> None:
    """Keep nodes free of operations while you work on them; one in flight ends first.

    Until they are returned, they count as unavailable. Pods stay on them.

    \b
    sluice lease take node-9 --reason "swap a riser"
    """
    if not reason.strip():
        raise Failure(ExitCode.WRONG_ARGUMENTS, "--reason is empty: say what you do on the node")
    from libs.ctl import leases
    from libs.ctl.cluster import open_cluster
    from libs.ctl.edits import Edit
    from libs.ctl.writes import write_nodes
    from libs.kube import views

    async def run() -> None:
        async with open_cluster(access) as cluster:
            await cluster.check_installed()
            who, at, frozen = await cluster.user(), time.time(), await _frozen_pools(cluster)

            def decide(seen: views.Object) -> Edit:
                return leases.take(seen.metadata, who=who, reason=reason, at=at, frozen=frozen)

            async def remark(name: str, _edit: Edit) -> str:
                return await _may_be_pulled(cluster, await cluster.node(name))

            await write_nodes(cluster, nodes, decide, yes=True, remark=remark)

    asyncio.run(run())


def give_back(access: Access, nodes: Nodes, yes: Yes = False) -> None:
    """Let operations start again on nodes that a person took.

    \b
    sluice lease return node-9 --yes
    """
    from libs.ctl import leases
    from libs.ctl.cluster import open_cluster
    from libs.ctl.edits import Edit
    from libs.ctl.writes import write_nodes
    from libs.kube import views

    async def run() -> None:
        async with open_cluster(access) as cluster:
            who = await cluster.user()

            def decide(seen: views.Object) -> Edit:
                return leases.give_back(seen.metadata, who=who)

            async def remark(name: str, edit: Edit) -> str:
                return leases.remaining_cordon(await cluster.node(name)) if edit.patch else ""

            await write_nodes(cluster, nodes, decide, yes=yes, remark=remark)

    asyncio.run(run())


async def _frozen_pools(cluster: "Cluster") -> frozenset[str]:
    """Return the pools in which no node moves; none where the user may not read Rollouts."""
    from libs.contracts.rollout import Brake

    with suppress(Failure):
        rollouts = await cluster.rollouts()
        return frozenset(r.metadata.name for r in rollouts if r.spec.brake is Brake.FREEZE)
    return frozenset()


async def _may_be_pulled(cluster: "Cluster", node: "views.Node") -> str:
    """Return whether a node that was taken may be pulled, as far as the user may see its pods."""
    from libs.ctl import leases
    from libs.ctl.bound_pods import may_be_pulled
    from libs.ctl.observe.objects import PODS

    name = node.metadata.name
    if not leases.is_taken(node.metadata):
        return ""
    try:
        pods = await cluster.list(PODS, fields=f"spec.nodeName={name}")
    except Failure as failure:
        return f". Whether pods run on it is not known ({failure}): look before you pull it"
    return f". {may_be_pulled(node, pods)}"
