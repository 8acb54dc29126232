"""Run `sluice lease take` and `return`: through Kubernetes alone, and so without NATS."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from libs.contracts.rollout import Brake
from libs.ctl import leases
from libs.ctl.bound_pods import may_be_pulled
from libs.ctl.cluster import Cluster, open_cluster
from libs.ctl.edits import Edit
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.observe.objects import PODS
from libs.ctl.options import Access
from libs.ctl.run.upgrade import write_nodes
from libs.kube import views


def take(access: Access, names: Sequence[str], *, reason: str) -> None:
    """Take the leases of nodes for the user."""
    if not reason.strip():
        raise Failure(ExitCode.WRONG_ARGUMENTS, "--reason is empty: say what you do on the node")
    _write(access, names, reason=reason, yes=True)


def give_back(access: Access, names: Sequence[str], *, yes: bool) -> None:
    """End the leases that people have on nodes."""
    _write(access, names, reason=None, yes=yes)


def _write(access: Access, names: Sequence[str], *, reason: str | None, yes: bool) -> None:
    """Write each node; without a reason, to return it."""

    async def run() -> None:
        async with open_cluster(access) as cluster:
            if reason is not None:
                await cluster.check_installed()
            who, at = await cluster.user(), time.time()
            frozen = () if reason is None else await _frozen_pools(cluster)

            def decide(seen: views.Object) -> Edit:
                if reason is None:
                    return leases.give_back(seen.metadata, who=who)
                return leases.take(seen.metadata, who=who, reason=reason, at=at, frozen=frozen)

            async def remark(name: str, edit: Edit) -> str:
                node = await cluster.node(name)
                if reason is not None:
                    return await _may_be_pulled(cluster, node)
                return leases.remaining_cordon(node) if edit.patch else ""

            await write_nodes(cluster, names, decide, yes=yes, remark=remark)

    asyncio.run(run())


async def _frozen_pools(cluster: Cluster) -> frozenset[str]:
    """Return the pools in which no node moves; none where the user may not read Rollouts."""
    with suppress(Failure):
        rollouts = await cluster.rollouts()
        return frozenset(r.metadata.name for r in rollouts if r.spec.brake is Brake.FREEZE)
    return frozenset()


async def _may_be_pulled(cluster: Cluster, node: views.Node) -> str:
    """Return whether a node that was taken may be pulled, as far as the user may see its pods."""
    name = node.metadata.name
    if not leases.is_taken(node.metadata):
        return ""
    try:
        pods = await cluster.list(PODS, fields=f"spec.nodeName={name}")
    except Failure as failure:
        return f". Whether pods run on it is not known ({failure}): look before you pull it"
    return f". {may_be_pulled(node, pods)}"
