"""Run `sluice lease take` and `return`: through Kubernetes alone, and so without NATS."""

import asyncio
import time
from collections.abc import Sequence

from libs.ctl import leases
from libs.ctl.cluster import open_cluster
from libs.ctl.edits import Edit
from libs.ctl.failures import ExitCode, Failure
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

            def decide(seen: views.Object) -> Edit:
                if reason is None:
                    return leases.give_back(seen.metadata, who=who)
                return leases.take(seen.metadata, who=who, reason=reason, at=at)

            await write_nodes(cluster, names, decide, yes=yes)

    asyncio.run(run())
