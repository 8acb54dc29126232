"""Collect the status of pools from Kubernetes and the scheduler; either may be away."""

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from libs.contracts.node import (
    MIG_STATE_LABEL,
    SKIP_LABEL,
    STATE_LABEL,
    MigState,
    UpgradeState,
)
from libs.contracts.queries import QueryVerb, StatusAnswer, StatusQuery
from libs.contracts.rollout import GROUP, RolloutStatus
from libs.ctl.answers import NodeAnswer
from libs.ctl.cluster import Cluster, open_cluster
from libs.ctl.collect import sources
from libs.ctl.collect.driver_trouble import driver_troubles
from libs.ctl.collect.node import answer_of
from libs.ctl.driver_trouble import starts_driver
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.listed_nodes import LISTED_NODES, NOT_DONE, known_metadata
from libs.ctl.options import Access
from libs.fleet.names import natural_order
from libs.fleet.node import FleetNode, fleet_node, is_settled, with_wanted
from libs.fleet.pools import Rollout, pool_from_scheduler, pool_of, with_waits
from libs.fleet.records import record_of
from libs.fleet.status import Status, held_nodes, with_reasons

if TYPE_CHECKING:
    from libs.ctl.observe.answers import ObservedNode, ObservedStatus

_UNDIVIDED = f"{STATE_LABEL},{MIG_STATE_LABEL},{MIG_STATE_LABEL}!={MigState.SUCCESS.value}"
_SKIPPED = f"{STATE_LABEL},{SKIP_LABEL}=true"
_CORDONED = "spec.unschedulable=true"
_T = TypeVar("_T")


async def gather_status(
    access: Access, name: str
) -> "Status | NodeAnswer | ObservedStatus | ObservedNode":
    """Return the status of all pools, of the pool or of the node of this name.

    Where Sluice is not installed and a GPU Operator is, its fleet is told.
    """
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(open_cluster(access))
        told = asyncio.create_task(
            sources.ask(access, StatusQuery(), QueryVerb.STATUS, StatusAnswer)
        )
        try:
            rollouts = await _or_failure(cluster.rollouts())
            if isinstance(rollouts, Failure):
                if observed := await _observe(cluster, name, rollouts):
                    return observed
                if rollouts.code is not ExitCode.NOT_ALLOWED:
                    return _status_without_cluster(await told, name, cluster.address, rollouts)
        finally:
            await asyncio.wait({told})
        answer = told.result()
        pools: set[str] = set()
        if isinstance(answer, StatusAnswer):
            pools |= {pool.pool for pool in answer.pools}
        if not isinstance(rollouts, Failure):
            pools |= {rollout.metadata.name for rollout in rollouts}
        if name and name not in pools:
            if isinstance(rollouts, Failure) and not pools:
                return await _node_or_pool(access, cluster, name, rollouts)
            return await _node_or_fail(access, cluster, name, sorted(pools))
        return await _status(cluster, rollouts, answer, name)


async def _or_failure(reading: Awaitable[_T]) -> _T | Failure:
    try:
        return await reading
    except Failure as failure:
        return failure


async def _observe(
    cluster: Cluster, name: str, failure: Failure
) -> "ObservedStatus | ObservedNode | None":
    """Return a GPU Operator's fleet where Rollouts cannot be read because Sluice is not there.

    An unknown kind is forbidden, rather than not found, for those without wide rights.
    """
    if failure.code not in (ExitCode.NOT_FOUND, ExitCode.NOT_ALLOWED):
        return None
    if failure.code is ExitCode.NOT_ALLOWED and await _is_installed(cluster):
        return None
    from libs.ctl.observe.gather import observe_status

    return await observe_status(cluster, name)


async def _is_installed(cluster: Cluster) -> bool:
    return await _or_failure(cluster.serves_group(GROUP)) is True


async def _status(
    cluster: Cluster,
    rollouts: tuple[Rollout, ...] | Failure,
    answer: StatusAnswer | Failure,
    name: str,
) -> Status:
    """Return what can be read of pools and of nodes; fail if that is nothing."""
    told = answer if isinstance(answer, StatusAnswer) else None
    nodes = await _or_failure(
        _rows(cluster, name, () if isinstance(rollouts, Failure) else rollouts)
    )
    lacking = {"pools": rollouts, "nodes": nodes}
    failures = {gives: each for gives, each in lacking.items() if isinstance(each, Failure)}
    if len(failures) == len(lacking) and told is None:
        raise failures["pools"]
    known = () if isinstance(rollouts, Failure) else rollouts
    versions = await cluster.versions(known)
    rows = () if isinstance(nodes, Failure) else nodes
    chosen = [row for row in rows if not name or row.pool == name]
    pools = with_waits(
        (pool_of(each.metadata, each.spec, each.status, versions) for each in known),
        told,
        versions,
    )
    given = " and ".join(gives for gives in lacking if gives not in failures)
    by_scheduler = "pools and waits" if "pools" in failures else "waits"
    return Status(
        pools=tuple(pool for pool in pools if name in ("", pool.name)),
        nodes=with_reasons((row for row in chosen if name or not is_settled(row)), told, versions),
        sources=(
            *((sources.kubernetes(cluster, given),) if given else ()),
            *(sources.missing(cluster.address, gives, each) for gives, each in failures.items()),
            sources.scheduler(answer, by_scheduler),
        ),
        held=held_nodes(chosen, told, name),
        exit_code=_exit_code(failures.values()),
    )


async def _rows(cluster: Cluster, pool: str, rollouts: Iterable[Rollout]) -> list[FleetNode]:
    """Return the nodes with something to tell; for a pool, all that have a state.

    All are listed too where fewer have the label of a node that is not done than are counted so:
    the others are done with an earlier target, as a node that a person has.
    """
    statuses = {each.metadata.name: each.status for each in rollouts}
    rows = await _listed_rows(cluster, every=bool(pool))
    counts = [each.counts for each in statuses.values()]
    not_done = sum(row.state != UpgradeState.UPGRADE_DONE for row in rows)
    if not pool and sum(each.total - each.done for each in counts) > not_done:
        rows = await _listed_rows(cluster, every=True)
    return [with_wanted(row, statuses.get(row.pool, RolloutStatus())) for row in rows]


async def _listed_rows(cluster: Cluster, *, every: bool) -> list[FleetNode]:
    listed, undivided, skipped, cordoned = await asyncio.gather(
        cluster.list(LISTED_NODES, labels=STATE_LABEL if every else NOT_DONE),
        cluster.list(LISTED_NODES, labels=_UNDIVIDED),
        cluster.list(LISTED_NODES, labels=_SKIPPED),
        cluster.list(LISTED_NODES, labels=STATE_LABEL, fields=_CORDONED),
    )
    is_cordoned = {each.metadata.name for each in cordoned}
    found = {each.metadata.name: each for each in (*listed, *undivided, *skipped, *cordoned)}
    known = {node: known_metadata(found[node]) for node in sorted(found, key=natural_order)}
    rows = [fleet_node(metadata, cordoned=node in is_cordoned) for node, metadata in known.items()]
    starting = {row.name: record_of(known[row.name]) for row in rows if starts_driver(row)}
    troubles = await driver_troubles(cluster, starting)
    return [replace(row, trouble=troubles.get(row.name, "")) for row in rows]


def _exit_code(failures: Iterable[Failure]) -> int:
    return next((int(each.code) for each in failures), int(ExitCode.DONE))


def _status_without_cluster(
    answer: StatusAnswer | Failure, name: str, url: str, failure: Failure
) -> Status:
    """Return what the scheduler alone says; fail if it says nothing either."""
    if isinstance(answer, Failure):
        raise failure
    pools = tuple(pool_from_scheduler(each) for each in answer.pools if name in ("", each.pool))
    if name and not pools:
        raise failure
    return Status(
        pools=pools,
        nodes=(),
        sources=(
            sources.scheduler(answer, "pools and waits"),
            sources.missing(url, "nodes", failure),
        ),
        held=held_nodes((), answer, name),
        exit_code=failure.code,
    )


async def _node_or_pool(
    access: Access, cluster: Cluster, name: str, failure: Failure
) -> NodeAnswer:
    """Return the node of this name; fail where it might be a pool, which cannot be read."""
    try:
        return await answer_of(access, cluster, name)
    except Failure as of_node:
        raise (failure if of_node.code is ExitCode.NOT_FOUND else of_node) from None


async def _node_or_fail(
    access: Access, cluster: Cluster, name: str, pools: list[str]
) -> NodeAnswer:
    try:
        return await answer_of(access, cluster, name)
    except Failure as failure:
        if failure.code is not ExitCode.NOT_FOUND:
            raise
        known = ", ".join(pools) or "none"
        raise Failure(
            ExitCode.NOT_FOUND, f"there is neither a pool nor a Node {name!r}; pools: {known}"
        ) from None
