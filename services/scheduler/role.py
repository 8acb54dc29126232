"""The scheduler: what it follows, and what it does while it leads."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Final

from libs.bus.port import Bus, BusError
from libs.bus.queries import QueryResponder
from libs.bus.slots import SlotWriter
from libs.contracts.identities import Writer
from libs.contracts.node import MANAGER, NodeRecord
from libs.contracts.queries import PlanAnswer
from libs.kube.client import Kube
from libs.kube.leader import Candidate
from libs.kube.transport import Transport
from libs.rollout.views.fleet import Instant
from libs.runtime.env import Env
from libs.runtime.logs import logger
from libs.runtime.service import Service
from services.cluster_role import ClusterSettings
from services.scheduler.effects.evictions import Evictions
from services.scheduler.effects.executor import Executor
from services.scheduler.effects.writes import Writes
from services.scheduler.events import UpgradeEvents
from services.scheduler.inputs import Inputs
from services.scheduler.leader import LeaderLoop
from services.scheduler.node_state import NodeStates
from services.scheduler.queries import PlanRunner, SchedulerQueries
from services.scheduler.resources import Node, Rollout
from services.scheduler.snapshot import annotations
from services.scheduler.snapshot.tracker import SnapshotTracker


class SchedulerSettings(ClusterSettings, frozen=True, kw_only=True):
    """Settings of the scheduler."""

    namespace: str
    """Of the operands, and of the lease."""
    pod_name: str = "scheduler"
    """By which people recognise who holds the lease."""


LEASE: Final = "sluice-scheduler"

_log = logger()


async def run_in_thread(work: Callable[[], PlanAnswer]) -> PlanAnswer:
    """A forecast takes seconds: the lease must be renewed meanwhile."""
    return await asyncio.to_thread(work)


async def run(
    settings: SchedulerSettings,
    *,
    env: Env,
    bus: Bus,
    kube: Transport,
    service: Service,
    plan_runner: PlanRunner = run_in_thread,
) -> None:
    """Follow the cluster and the bus; upgrade nodes while leading."""
    candidate = Candidate(
        kube,
        manager=MANAGER,
        namespace=settings.namespace,
        lease=LEASE,
        identity=settings.pod_name,
        env=env,
    )
    inputs = Inputs(candidate.kube, bus, namespace=settings.namespace, env=env)
    holder = candidate.holder

    async def lead(fenced: Kube) -> None:
        rollouts, nodes = inputs.informers.rollouts, inputs.informers.nodes
        await rollouts.verify_current()
        epoch = next_epoch(rollouts, nodes, in_slots=inputs.slot_cache.epoch)
        term = start_term(inputs, kube=fenced, epoch=epoch, holder=holder, plan_runner=plan_runner)
        async with term as loop:
            inputs.metrics.set_leading(True)
            _log.info("leads", holder=holder, epoch=epoch)
            await loop.run()

    async def wait_and_lead() -> None:
        await inputs.wait_for_sync()
        await candidate.run(lead, on_term_end=lambda: inputs.metrics.set_leading(False))

    await inputs.open(service)
    inputs.start(service)
    service.run_forever("lead", wait_and_lead())


_CONCURRENT_QUERIES: Final = 4


@asynccontextmanager
async def start_term(
    inputs: Inputs, *, kube: Kube, epoch: int, holder: str, plan_runner: PlanRunner
) -> AsyncGenerator[LeaderLoop]:
    """Its work, until the end of the block; `kube` lets out what this leader may write."""
    async with AsyncExitStack() as stack:
        memory = NodeStates()
        observing = _make_tracker(inputs, memory)
        stack.callback(observing.subscribe())
        stack.callback(inputs.on_node_change(observing.mark_node))
        stack.callback(inputs.pod_cache.follow, ())
        reporting = UpgradeEvents(
            kube_events=inputs.kube_events,
            publisher=inputs.publisher,
            metrics=inputs.metrics,
            node_states=memory,
            env=inputs.env,
            epoch=epoch,
        )
        reporting.leader_started(holder)
        stack.callback(inputs.informers.rollouts.cache.on_change(reporting.rollout_changed))
        acting = _make_executor(inputs, memory, observing, reporting, kube=kube)

        def instant() -> Instant:
            return inputs.freshness.instant(epoch)

        work = LeaderLoop(
            tracker=observing,
            executor=acting,
            events=reporting,
            metrics=inputs.metrics,
            instant=instant,
            slot_epoch=lambda: inputs.slot_cache.epoch,
            wake_signal=inputs.wake_signal,
            clock=inputs.env.clock,
        )
        answering = SchedulerQueries(
            tracker=observing,
            waits=lambda: work.decider.waits,
            history=reporting.history,
            rollout_errors=memory.rollout_errors,
            instant=instant,
            holder=holder,
            plan_runner=plan_runner,
        )
        await stack.enter_async_context(_answer_queries(inputs, answering))
        yield work


def _make_tracker(ground: Inputs, memory: NodeStates) -> SnapshotTracker:
    return SnapshotTracker(
        informers=ground.informers,
        reports=ground.reports,
        heartbeats=ground.heartbeats,
        slot_cache=ground.slot_cache,
        pod_cache=ground.pod_cache,
        node_states=memory,
        namespace=ground.namespace,
        clock=ground.env.clock,
        wake=ground.wake_signal.notify,
    )


def _make_executor(
    ground: Inputs,
    memory: NodeStates,
    observing: SnapshotTracker,
    reporting: UpgradeEvents,
    *,
    kube: Kube,
) -> Executor:
    hands = Writes(kube, informers=ground.informers, metrics=ground.metrics)
    evicting = Evictions(
        hands,
        node_states=memory,
        env=ground.env,
        on_change=observing.mark_node,
        on_answer=reporting.eviction_answered,
    )
    return Executor(
        hands,
        tracker=observing,
        slot_writer=SlotWriter(bus=ground.bus, clock=ground.env.clock),
        slot_cache=ground.slot_cache,
        evictions=evicting,
        events=reporting,
        node_states=memory,
        env=ground.env,
        cluster=ground.bus.identity.cluster,
        verify_source=ground.informers.verify_part,
        purge_node=ground.purge_node,
    )


@asynccontextmanager
async def _answer_queries(ground: Inputs, answering: SchedulerQueries) -> AsyncGenerator[None]:
    """Who leads answers; while the bus is away nobody can ask."""
    responder = QueryResponder(
        bus=ground.bus,
        env=ground.env,
        name=Writer.SCHEDULER.value,
        version=version("sluice"),
        handlers=answering.handlers(),
        concurrent=_CONCURRENT_QUERIES,
    )
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(responder)
        except BusError as error:
            _log.warning("questions are not answered in this term", why=str(error))
        yield


def next_epoch(rollouts: Iterable[Rollout], nodes: Iterable[Node], *, in_slots: int) -> int:
    """One above the highest, of which `in_slots` is that of the command slots."""
    return 1 + max(in_slots, *_known_epochs(rollouts, nodes), 0)


def _known_epochs(rollouts: Iterable[Rollout], nodes: Iterable[Node]) -> Iterator[int]:
    for one in rollouts:
        yield one.status.epoch
    for node in nodes:
        record = annotations.record(node)
        if isinstance(record, NodeRecord):
            yield record.epoch
