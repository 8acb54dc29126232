"""Collect a forecast, of Sluice's scheduler or of a GPU Operator's fleet."""

import time
from typing import TYPE_CHECKING

from libs.contracts.queries import PlanAnswer, PlanQuery, QueryVerb, StatusAnswer, StatusQuery
from libs.ctl.answers import PlannedFile, PlanView, PoolPlans
from libs.ctl.chosen_pools import only_pool, unknown_pool
from libs.ctl.cluster import LABELLED_NODES, open_cluster
from libs.ctl.collect.versions import known_versions
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access
from libs.fleet.names import version_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from libs.ctl.bus import Scheduler
    from libs.ctl.observe.plan import ObservedPlan
    from libs.ctl.policy_file import PolicyFile


async def gather_plan(
    access: Access,
    query: PlanQuery,
    file: "PolicyFile | None" = None,
    *,
    may_be_several: bool = False,
    tell: "Callable[[str], None] | None" = None,
) -> "PlanView | PoolPlans | ObservedPlan":
    """Ask for a forecast, with a file as if it were applied.

    Without a pool it is of the only one, or, where it may be, of each of several. Without NATS, the
    plan of a GPU Operator's fleet is told, where Sluice is not installed. `tell` is given what is
    waited for; it goes to stderr otherwise.
    """
    from msgspec.structs import replace

    if not access.nats and (observed := await _observe(access, query, file)):
        return observed
    from libs.ctl.bus import open_scheduler, tell_on_stderr

    tell = tell or tell_on_stderr
    planned: PlannedFile | None = None
    limits_given = bool(query.max_unavailable) or query.max_parallel is not None
    if file is not None:
        query, planned = await _with_file(access, query, file)
    async with open_scheduler(access) as scheduler:
        pools = [query.pool]
        if not query.pool:
            pools = await _pools(scheduler)
            if len(pools) < 2 or not may_be_several:
                pools = [only_pool(pools, more="`sluice plan` alone shows each in short")]
        views = [
            await _ask(scheduler, replace(query, pool=pool), limits_given=limits_given, tell=tell)
            for pool in pools
        ]
    versions: Mapping[str, str] = {}
    named = query.driver_version if planned is None else planned.version
    if not named:
        versions = await known_versions(access)
    views = [
        replace(view, version=named or version_name(view.plan.target, versions), file=planned)
        for view in views
    ]
    return views[0] if query.pool or len(views) == 1 else PoolPlans(plans=tuple(views))


async def _ask(
    scheduler: "Scheduler", query: PlanQuery, *, limits_given: bool, tell: "Callable[[str], None]"
) -> PlanView:
    """Ask for the plan of a pool, and for the one by the policy's limits if others are given."""
    from msgspec.structs import replace

    from libs.ctl.bus import when_ready

    at = time.time()

    async def ask(query: PlanQuery) -> PlanAnswer:
        return await scheduler.plan(query, tell=tell)

    async def ask_anew() -> PlanAnswer:
        nonlocal at
        at = time.time()
        return await ask(query)

    try:
        plan, with_policy_limits = await when_ready(ask_anew, tell=tell), None
    except Failure as failure:
        if failure.code is ExitCode.NOT_FOUND and query.pool not in (
            pools := await _pools(scheduler)
        ):
            raise unknown_pool(query.pool, pools) from failure
        raise
    if limits_given and plan.nodes and plan.limits != plan.policy_limits:
        by_policy = replace(query, max_unavailable="", max_parallel=None, finish_by=None)
        with_policy_limits = await when_ready(lambda: ask(by_policy))
    return PlanView(
        version="",
        plan=plan,
        at=at,
        limits_given=limits_given,
        finish_by=query.finish_by,
        with_policy_limits=with_policy_limits,
    )


async def _pools(scheduler: "Scheduler") -> list[str]:
    status = await scheduler.ask(StatusQuery(), QueryVerb.STATUS, StatusAnswer)
    return [pool.pool for pool in status.pools]


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
