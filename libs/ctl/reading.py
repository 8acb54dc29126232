"""Answers of the verbs plan, gpus and events, collected."""

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from libs.contracts.device import UNKNOWN
from libs.contracts.queries import PlanAnswer, PlanQuery, QueryVerb, StatusAnswer, StatusQuery
from libs.ctl.answers import EventLine, Gpu, PlanView
from libs.ctl.cluster import DEVICES, Device, open_cluster
from libs.ctl.comparison import Comparison, RolloutHistory
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access
from libs.ctl.text import parse_duration, parse_time, version_name

if TYPE_CHECKING:
    from libs.ctl.observe.plan import ObservedPlan


async def gather_plan(access: Access, query: PlanQuery) -> "PlanView | ObservedPlan":
    """Ask for a forecast; without a pool, of the only one.

    Without NATS, the plan of a GPU Operator's fleet is told, where Sluice is not installed.
    """
    from msgspec.structs import replace

    if not access.nats and (observed := await _observe(access, query)):
        return observed
    from libs.ctl.asking import open_scheduler

    async with open_scheduler(access) as scheduler:
        if not query.pool:
            status = await scheduler.ask(StatusQuery(), QueryVerb.STATUS, StatusAnswer)
            query = replace(query, pool=only_pool([pool.pool for pool in status.pools]))
        plan = await scheduler.ask(query, QueryVerb.PLAN, PlanAnswer)
    version = query.driver_version
    if not version:
        version = version_name(plan.target, await _versions(access))
    return PlanView(version=version, plan=plan, finish_by=query.finish_by)


async def _observe(access: Access, query: PlanQuery) -> "ObservedPlan | None":
    from libs.ctl.observe.gather import observe_plan

    try:
        async with open_cluster(access) as cluster:
            observed = await observe_plan(
                cluster,
                pool=query.pool,
                version=query.driver_version,
                max_unavailable=query.max_unavailable,
                max_parallel=query.max_parallel,
            )
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


async def gather_comparison(access: Access, *, pool: str, version: str) -> Comparison:
    """Return the last rollout of a pool, or the last to a version, beside its plan."""
    from libs.bus.events import RecordedEvent, read_events
    from libs.bus.port import BusError
    from libs.contracts.message import MalformedMessage
    from libs.ctl.asking import open_bus
    from libs.ctl.failures import bus_failure

    versions = await _versions(access)
    history = RolloutHistory()
    async with open_bus(access) as bus:
        try:
            async with read_events(bus=bus, cluster=access.cluster) as events:
                async for stored in events:
                    if isinstance(stored, RecordedEvent):
                        with suppress(MalformedMessage):
                            history.add(stored.event, stored.event.open())
        except BusError as error:
            raise bus_failure(error) from error
    return _chosen(history, versions, pool=pool, version=version)


def _chosen(
    history: RolloutHistory, versions: Mapping[str, str], *, pool: str, version: str
) -> Comparison:
    if not history.pools():
        raise Failure(ExitCode.NOT_FOUND, "there is no rollout among the events of 30 days")
    pool = pool or only_pool(history.pools())
    targets = history.targets(pool)
    named = [each for each in targets if version in ("", version_name(each, versions))]
    if not named:
        known = ", ".join(version_name(each, versions) for each in targets) or "none"
        raise Failure(
            ExitCode.NOT_FOUND,
            f"no rollout of pool {pool!r} to {version or 'a driver'} is among the events of 30"
            f" days; pools with one: {', '.join(history.pools())}; drivers of this pool: {known}",
        )
    found = history.comparison(pool, named[0])
    return msgspec.structs.replace(found, version=version_name(found.target, versions))


async def _versions(access: Access) -> Mapping[str, str]:
    """Return the versions of targets, or none where Kubernetes does not answer."""
    try:
        async with open_cluster(access) as cluster:
            return await cluster.versions(await cluster.rollouts())
    except Failure:
        return {}


async def gather_gpus(access: Access, node: str) -> tuple[Gpu, ...]:
    """Return the GPUs of all nodes, or of one."""
    async with open_cluster(access) as cluster:
        devices = await cluster.list(DEVICES)
        if node and not any(each.spec.node == node for each in devices):
            await cluster.node(node)
    found = (gpu_of(each) for each in devices if node in ("", each.spec.node))
    return tuple(sorted(found, key=lambda gpu: (gpu.node, gpu.index)))


def gpu_of(device: Device) -> Gpu:
    """Return a GPU as its `Device` shows it."""
    spec, status = device.spec, device.status
    health = status.health
    return Gpu(
        node=spec.node,
        index=spec.index,
        product=spec.product,
        memory_mib=spec.memory,
        health=health.state if health else UNKNOWN,
        because=(health.message or health.reason) if health else "",
        remedy=health.remedy if health else "",
        uuid=status.uuid,
        driver=status.driver,
        mig=status.mig.mode if status.mig else "",
    )


async def follow_events(
    access: Access, *, follow: bool, since: float | None, node: str
) -> AsyncGenerator[EventLine]:
    """Yield the events of the stream, in order; with `follow` without end."""
    from libs.bus.events import RecordedEvent, read_events
    from libs.bus.port import BusError
    from libs.ctl.asking import open_bus
    from libs.ctl.failures import bus_failure

    versions = await _versions(access)
    async with open_bus(access) as bus:
        try:
            async with read_events(bus=bus, cluster=access.cluster, follow=follow) as events:
                async for stored in events:
                    if not isinstance(stored, RecordedEvent):
                        continue
                    event = stored.event
                    if event.at >= (since or 0.0) and node in ("", event.node):
                        yield EventLine.of(event, versions)
        except BusError as error:
            raise bus_failure(error) from error


def parse_since(text: str) -> float | None:
    """Return Unix seconds of `--since`: a duration before now, or a time."""
    if not text:
        return None
    seconds = parse_duration(text)
    at = time.time() - seconds if seconds is not None else parse_time(text)
    if at is None:
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            f"--since {text!r} is no time: write 90m, 2h or 2026-05-01T22:00",
        )
    return at


def parse_finish(text: str) -> float | None:
    """Return Unix seconds of `--finish-by`: a duration from now, or a time."""
    if not text:
        return None
    seconds = parse_duration(text)
    at = time.time() + seconds if seconds is not None else parse_time(text)
    if at is None or at <= time.time():
        problem = "is no time" if at is None else "is in the past"
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            f"--finish-by {text!r} {problem}: write 2h, or a time such as 2026-05-01T06:00",
        )
    return at
