"""Collect a forecast, of Sluice's scheduler or of a GPU Operator's fleet."""

import time
from typing import TYPE_CHECKING

from libs.contracts.queries import PlanAnswer, PlanQuery, QueryVerb, StatusAnswer, StatusQuery
from libs.ctl.answers import PlannedFile, PlanView
from libs.ctl.cluster import LABELLED_NODES, open_cluster
from libs.ctl.collect.versions import known_versions
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access
from libs.ctl.text import version_name

if TYPE_CHECKING:
    from libs.ctl.observe.plan import ObservedPlan
    from libs.ctl.policy_file import PolicyFile


async def gather_plan(
    access: Access, query: PlanQuery, file: "PolicyFile | None" = None
) -> "PlanView | ObservedPlan":
    """Ask for a forecast, with a file as if it were applied; without a pool, of the only one.

    Without NATS, the plan of a GPU Operator's fleet is told, where Sluice is not installed.
    """
    from msgspec.structs import replace

    if not access.nats and (observed := await _observe(access, query, file)):
        return observed
    from libs.ctl.bus import open_scheduler, when_ready

    planned: PlannedFile | None = None
    at = time.time()
    limits_given = bool(query.max_unavailable) or query.max_parallel is not None
    if file is not None:
        query, planned = await _with_file(access, query, file)
    async with open_scheduler(access) as scheduler:
        if not query.pool:
            status = await scheduler.ask(StatusQuery(), QueryVerb.STATUS, StatusAnswer)
            query = replace(query, pool=only_pool([pool.pool for pool in status.pools]))

        async def ask() -> PlanAnswer:
            nonlocal at
            at = time.time()
            return await scheduler.ask(query, QueryVerb.PLAN, PlanAnswer)

        plan = await when_ready(ask)
    version = query.driver_version if planned is None else planned.version
    if not version:
        version = version_name(plan.target, await known_versions(access))
    return PlanView(
        version=version,
        plan=plan,
        at=at,
        limits_given=limits_given,
        finish_by=query.finish_by,
        file=planned,
    )


async def _with_file(
    access: Access, query: PlanQuery, file: "PolicyFile"
) -> tuple[PlanQuery, PlannedFile]:
    """Return the query for the pool of the file's policy, and what it takes from the file."""
    from libs.ctl.collect.policy_file import gather_change

    async with open_cluster(access) as cluster:
        nodes = await cluster.list(LABELLED_NODES)
        change = await gather_change(
            cluster, file, nodes, pool=query.pool, name_of=lambda policy: policy.key
        )
    query = change.query(query)
    return query, change.planned_file(query)


async def _observe(
    access: Access, query: PlanQuery, file: "PolicyFile | None"
) -> "ObservedPlan | None":
    from libs.ctl.observe.gather import observe_plan

    try:
        async with open_cluster(access) as cluster:
            observed = await observe_plan(cluster, query, file)
    except Failure as failure:
        if failure.code is ExitCode.NOT_REACHABLE:
            return None
        raise
    if observed is not None and query.finish_by is not None:
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            "--finish-by needs Sluice's scheduler, and this fleet is the GPU Operator's: try"
            " --max-unavailable instead",
        )
    return observed


def only_pool(pools: list[str]) -> str:
    """Return the only pool; fail with their names if there are several."""
    if len(pools) == 1:
        return pools[0]
    if not pools:
        raise Failure(ExitCode.NOT_FOUND, "there is no pool: no policy selects a node with GPUs")
    raise Failure(
        ExitCode.WRONG_ARGUMENTS, f"there are several pools; name one of: {', '.join(pools)}"
    )
