"""Collect an answer from Kubernetes and the scheduler; either may be away."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypeVar

import msgspec

from libs.contracts.message import Message
from libs.contracts.node import DRIVER_LABEL, STATE_LABEL, UpgradeState, WaitCode
from libs.contracts.queries import QueryVerb, StatusAnswer, StatusQuery, WhyAnswer, WhyQuery
from libs.ctl import answers, node_answers
from libs.ctl.answers import NodeAnswer, NodeFact, Source, Status
from libs.ctl.cluster import Cluster, NodeEvent, Rollout, open_cluster
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.listed_nodes import LISTED_NODES
from libs.ctl.options import Access
from libs.ctl.text import name_versions, natural_order

if TYPE_CHECKING:
    from libs.ctl.observe.answers import ObservedNode, ObservedStatus

_NOT_DONE = f"{STATE_LABEL},{STATE_LABEL}!={UpgradeState.UPGRADE_DONE.value}"
_CORDONED = "spec.unschedulable=true"
_LAST_EVENTS = 10
_OF_ROLLOUT = (WaitCode.PAUSED, WaitCode.FROZEN, WaitCode.HALTED, WaitCode.FAILED)
_A = TypeVar("_A", bound=Message)


async def gather_status(
    access: Access, name: str
) -> "Status | NodeAnswer | ObservedStatus | ObservedNode":
    """Return the status of all pools, of the pool or of the node of this name.

    Where Sluice is not installed and a GPU Operator is, its fleet is told.
    """
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(open_cluster(access))
        told = asyncio.create_task(_ask(access, StatusQuery(), QueryVerb.STATUS, StatusAnswer))
        try:
            rollouts = await cluster.rollouts()
        except Failure as failure:
            # An unknown kind is forbidden, rather than not found, for those without wide rights.
            unknown = failure.code in (ExitCode.NOT_FOUND, ExitCode.NOT_ALLOWED)
            if unknown and (observed := await _observe(cluster, name)):
                return observed
            return _status_without_cluster(await told, name, cluster.address, failure)
        finally:
            await asyncio.wait({told})
        pools = {rollout.metadata.name for rollout in rollouts}
        answer = told.result()
        if isinstance(answer, StatusAnswer):
            pools |= {pool.pool for pool in answer.pools}
        if name and name not in pools:
            return await _node_or_fail(access, cluster, name, sorted(pools))
        return await _status(cluster, rollouts, answer, name)


async def _observe(cluster: Cluster, name: str) -> "ObservedStatus | ObservedNode | None":
    from libs.ctl.observe.gather import observe_status

    return await observe_status(cluster, name)


async def gather_why(access: Access, name: str) -> "NodeAnswer | ObservedNode":
    """Return what the scheduler says of a node, and what Kubernetes shows of it.

    Without an answer and without a trace of Sluice on the node, a GPU Operator's may be told.
    """
    async with open_cluster(access) as cluster:
        answer = await _node(access, cluster, name)
        if answer.why is not None or DRIVER_LABEL in answer.labels or answer.node.attempt:
            return answer
        from libs.ctl.observe.gather import observe_why

        return await observe_why(cluster, name) or answer


async def _status(
    cluster: Cluster, rollouts: tuple[Rollout, ...], answer: StatusAnswer | Failure, name: str
) -> Status:
    versions = await cluster.versions(rollouts)
    listed, cordoned = await asyncio.gather(
        cluster.list(LISTED_NODES, labels=STATE_LABEL if name else _NOT_DONE),
        cluster.list(LISTED_NODES, labels=STATE_LABEL, fields=_CORDONED),
    )
    is_cordoned = {each.metadata.name for each in cordoned}
    found = {each.metadata.name: each for each in (*listed, *cordoned)}
    rows = [
        answers.node_row(found[node].known_metadata(), cordoned=node in is_cordoned)
        for node in sorted(found, key=natural_order)
    ]
    chosen = [row for row in rows if not name or row.pool == name]
    told = answer if isinstance(answer, StatusAnswer) else None
    pools = answers.with_waits(
        (answers.pool_of(each.metadata, each.spec, each.status, versions) for each in rollouts),
        told,
        versions,
    )
    return Status(
        pools=tuple(pool for pool in pools if name in ("", pool.name)),
        nodes=tuple(row for row in chosen if name or not answers.is_settled(row)),
        sources=(_kubernetes(cluster, "pools and nodes"), _scheduler(answer)),
        held=answers.held_nodes(chosen, told, name),
    )


def _status_without_cluster(
    answer: StatusAnswer | Failure, name: str, url: str, failure: Failure
) -> Status:
    """Return what the scheduler alone says; fail if it says nothing either."""
    if isinstance(answer, Failure):
        raise failure
    pools = tuple(
        answers.pool_from_scheduler(each) for each in answer.pools if name in ("", each.pool)
    )
    if name and not pools:
        raise failure
    problem = Source(name=f"Kubernetes ({url})", gives="nodes", problem=str(failure))
    return Status(
        pools=pools,
        nodes=(),
        sources=(_scheduler(answer, "pools and waits"), problem),
        held=answers.held_nodes((), answer, name),
    )


async def _node_or_fail(
    access: Access, cluster: Cluster, name: str, pools: list[str]
) -> NodeAnswer:
    try:
        return await _node(access, cluster, name)
    except Failure as failure:
        if failure.code is not ExitCode.NOT_FOUND:
            raise
        known = ", ".join(pools) or "none"
        raise Failure(
            ExitCode.NOT_FOUND, f"there is neither a pool nor a Node {name!r}; pools: {known}"
        ) from None


async def _node(access: Access, cluster: Cluster, name: str) -> NodeAnswer:
    told = asyncio.create_task(_ask(access, WhyQuery(node=name), QueryVerb.WHY, WhyAnswer))
    try:
        node = await cluster.node(name)
        events, lacking = await _node_events(cluster, name)
    finally:
        await asyncio.wait({told})
    answer = told.result()
    why = answer if isinstance(answer, WhyAnswer) else None
    facts = [event_fact(each) for each in events[-_LAST_EVENTS:]]
    ended_by = ""
    by_rollout = why is not None and why.wait is not None and why.wait.code in _OF_ROLLOUT
    if by_rollout or (why and node_answers.has_digest(why)) or any(map(_names_digest, facts)):
        rollouts = await cluster.rollouts()
        versions = await cluster.versions(rollouts)
        ended_by = _ended_by(why, rollouts, versions) if why is not None else ""
        why = why and node_answers.with_versions(why, versions)
        facts = [_with_versions(each, versions) for each in facts]
    return node_answers.node_answer(
        node,
        facts,
        why=why,
        ended_by=ended_by,
        sources=(
            _kubernetes(cluster, "labels and conditions"),
            *lacking,
            _scheduler(answer, "why"),
        ),
    )


def _ended_by(why: WhyAnswer, rollouts: Iterable[Rollout], versions: Mapping[str, str]) -> str:
    found = (each for each in rollouts if each.metadata.name == why.pool)
    rollout = next(found, None)
    if rollout is None:
        return ""
    return node_answers.ending_command(why, rollout.spec, rollout.status, versions)


async def _node_events(
    cluster: Cluster, name: str
) -> tuple[tuple[NodeEvent, ...], tuple[Source, ...]]:
    """Return the Events about a node, and why there are none where the user may not read them."""
    try:
        return await cluster.node_events(name), ()
    except Failure as failure:
        if failure.code is not ExitCode.NOT_ALLOWED:
            raise
        source = Source(
            name=f"Kubernetes ({cluster.address})", gives="Events", problem=str(failure)
        )
        return (), (source,)


def _names_digest(fact: NodeFact) -> bool:
    return _with_versions(fact, {}) != fact


def _with_versions(fact: NodeFact, versions: Mapping[str, str]) -> NodeFact:
    return msgspec.structs.replace(fact, text=name_versions(fact.text, versions))


def event_fact(event: NodeEvent) -> NodeFact:
    at = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
    return NodeFact(name=event.reason, text=event.message, at=at)


async def _ask(access: Access, query: Message, verb: QueryVerb, answer: type[_A]) -> _A | Failure:
    """Return the scheduler's answer, or why there is none."""
    if not access.nats:
        return Failure(
            ExitCode.NOT_REACHABLE, "no address of NATS is given (--nats or SLUICE_NATS_URL)"
        )
    from libs.ctl.bus import open_scheduler

    try:
        async with open_scheduler(access) as scheduler:
            return await scheduler.ask(query, verb, answer)
    except Failure as failure:
        return failure


def _kubernetes(cluster: Cluster, gives: str) -> Source:
    return Source(name=f"Kubernetes ({cluster.address})", gives=gives, age=0.0)


def _scheduler(answer: Message | Failure, gives: str = "waits") -> Source:
    if isinstance(answer, Failure):
        return Source(name="the scheduler", gives=gives, problem=str(answer))
    if isinstance(answer, StatusAnswer):
        source = answers.scheduler_source(answer, now=time.time())
        return Source(name=source.name, gives=gives, age=source.age, behind=source.behind)
    return Source(name="the scheduler", gives=gives, age=0.0)
