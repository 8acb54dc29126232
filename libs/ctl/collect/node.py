"""Collect what is known of one node from Kubernetes and the scheduler; either may be away."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from libs.contracts.node import DRIVER_LABEL
from libs.contracts.queries import QueryVerb, WhyAnswer, WhyQuery
from libs.contracts.rollout import RolloutStatus
from libs.contracts.waits import WaitCode
from libs.ctl import node_answers
from libs.ctl.answers import NodeAnswer, NodeFact
from libs.ctl.cluster import Cluster, NodeEvent, open_cluster
from libs.ctl.collect import sources
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access
from libs.fleet.names import name_versions
from libs.fleet.pools import Rollout
from libs.fleet.status import Source
from libs.kube import views

if TYPE_CHECKING:
    from libs.ctl.observe.answers import ObservedNode

_LAST_EVENTS = 10
_OF_ROLLOUT = (
    WaitCode.PAUSED,
    WaitCode.FROZEN,
    WaitCode.HALTED,
    WaitCode.FAILED,
    WaitCode.SKIPPED,
)
_T = TypeVar("_T")


async def gather_why(access: Access, name: str) -> "NodeAnswer | ObservedNode":
    """Return what the scheduler says of a node, and what Kubernetes shows of it.

    Without an answer and without a trace of Sluice on the node, a GPU Operator's may be told.
    """
    async with open_cluster(access) as cluster:
        answer = await answer_of(access, cluster, name)
        if answer.why is not None or DRIVER_LABEL in answer.labels or answer.node.attempt:
            return answer
        from libs.ctl.observe.gather import observe_why

        return await observe_why(cluster, name) or answer


async def answer_of(access: Access, cluster: Cluster, name: str) -> NodeAnswer:
    """Return what is known of the node of this name; fail if there is none."""
    told = asyncio.create_task(sources.ask(access, WhyQuery(node=name), QueryVerb.WHY, WhyAnswer))
    try:
        return await answer_about(cluster, await cluster.node(name), told)
    finally:
        await asyncio.wait({told})


async def answer_about(
    cluster: Cluster,
    node: views.Node,
    told: Awaitable[WhyAnswer | Failure],
    *,
    most_events: int = _LAST_EVENTS,
) -> NodeAnswer:
    """Return what is known of a node, with what the scheduler is being asked about it."""
    name = node.metadata.name
    events, lacking = await _or_source(cluster, "Events", cluster.node_events(name))
    answer = await told
    why = answer if isinstance(answer, WhyAnswer) else None
    facts = [event_fact(each) for each in events[-most_events:]]
    ended_by, rollout = "", None
    by_rollout = why is not None and why.wait is not None and why.wait.code in _OF_ROLLOUT
    if by_rollout or (why and node_answers.has_digest(why)) or any(map(_names_digest, facts)):
        rollouts, unread = await _or_source(cluster, "the pool", cluster.rollouts())
        lacking += unread
        versions = await cluster.versions(rollouts)
        rollout = _rollout_of(why, rollouts)
        if why is not None and rollout is not None:
            ended_by = node_answers.ending_command(why, rollout.spec, rollout.status, versions)
        why = why and node_answers.with_versions(why, versions)
        facts = [_with_versions(each, versions) for each in facts]
    unmanaged = node_answers.why_unmanaged(node, answer)
    return node_answers.node_answer(
        node,
        facts,
        why=why,
        unmanaged=unmanaged,
        ended_by=ended_by,
        rollout=rollout.status if rollout is not None else RolloutStatus(),
        sources=(
            sources.kubernetes(cluster, "labels and conditions"),
            *lacking,
            sources.scheduler(None if unmanaged else answer, "why"),
        ),
    )


def _rollout_of(why: WhyAnswer | None, rollouts: Iterable[Rollout]) -> Rollout | None:
    found = (each for each in rollouts if why is not None and each.metadata.name == why.pool)
    return next(found, None)


async def _or_source(
    cluster: Cluster, gives: str, reading: Awaitable[tuple[_T, ...]]
) -> tuple[tuple[_T, ...], tuple[Source, ...]]:
    """Return what is read, or why there is nothing where the user may not read it."""
    try:
        return await reading, ()
    except Failure as failure:
        if failure.code is not ExitCode.NOT_ALLOWED:
            raise
        return (), (sources.missing(cluster.address, gives, failure),)


def _names_digest(fact: NodeFact) -> bool:
    return _with_versions(fact, {}) != fact


def _with_versions(fact: NodeFact, versions: Mapping[str, str]) -> NodeFact:
    return msgspec.structs.replace(fact, text=name_versions(fact.text, versions))


def event_fact(event: NodeEvent) -> NodeFact:
    return NodeFact(name=event.reason, text=event.message, at=event.at)
