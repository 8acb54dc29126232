"""The scheduler from start to stop: it stands on its ground, and works while it leads."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Final

from libs.bus.connect import NatsSettings
from libs.bus.port import Bus, BusError
from libs.bus.queries import QueryResponder
from libs.bus.slots import SlotWriter
from libs.contracts.identities import Writer
from libs.contracts.node import MANAGER, NodeRecord
from libs.contracts.queries import PlanAnswer
from libs.kube.client import Kube
from libs.kube.lease.election import LeaderElector
from libs.kube.lease.fence import FencedTransport
from libs.kube.lease.term import NotLeading, Term
from libs.kube.transport import Transport
from libs.rollout.views.fleet import Instant
from libs.runtime.backoff import jittered
from libs.runtime.env import Env
from libs.runtime.logs import logger
from libs.runtime.process import ProcessSettings
from libs.runtime.service import Service
from services.scheduler.effects.evictions import Evictions
from services.scheduler.effects.executor import Executor
from services.scheduler.effects.writes import Writes
from services.scheduler.events import UpgradeEvents
from services.scheduler.inputs import Inputs
from services.scheduler.leader import Deposed, LeaderLoop
from services.scheduler.node_state import NodeStates
from services.scheduler.queries import PlanRunner, SchedulerQueries
from services.scheduler.resources import Node, Rollout
from services.scheduler.snapshot import annotations
from services.scheduler.snapshot.tracker import SnapshotTracker


class SchedulerSettings(ProcessSettings, frozen=True, kw_only=True):
    """Settings of the scheduler."""

    nats: NatsSettings = NatsSettings()
    kubeconfig: str = ""
    """Empty: as the environment or the pod says."""
    namespace: str
    """Of the operands, and of the lease."""
    pod_name: str = "scheduler"
    """By which people recognise who holds the lease."""


LEASE: Final = "sluice-scheduler"
_AFTER: Final = 5.0
"""Seconds until one that was deposed is a candidate again."""

_log = logger()


async def run_in_thread(work: Callable[[], PlanAnswer]) -> PlanAnswer:
    """A forecast takes seconds: the lease must be renewed meanwhile."""
    return await asyncio.to_thread(work)


async def run(
    settings: SchedulerSettings,
    *,
    kube: Transport,
    bus: Bus,
    env: Env,
    service: Service,
    plan_runner: PlanRunner = run_in_thread,
) -> None:
    """Start it."""
    asking = Kube(kube, manager=MANAGER, clock=env.clock)
    ground = Inputs(
        asking,
        bus,
        namespace=settings.namespace,
        env=env,
    )
    lease = LeaderElector(
        kube=asking,
        namespace=settings.namespace,
        name=LEASE,
        identity=settings.pod_name,
        env=env,
    )
    await ground.open(service)
    ground.start(service)
    leading = _Candidate(ground, lease, transport=kube, plan_runner=plan_runner)
    service.run_forever("lead", leading.run())


class _Candidate:
    """A candidate for ever: from one term to the next."""

    def __init__(
        self, inputs: Inputs, lease: LeaderElector, *, transport: Transport, plan_runner: PlanRunner
    ) -> None:
        self._ground = inputs
        self._lease = lease
        self._transport = transport
        self._plan_runner = plan_runner

    async def run(self) -> None:
        """Nobody leads before he knows what there is."""
        ground = self._ground
        await ground.wait_for_sync()
        while True:
            try:
                async with self._lease.lead() as term:
                    await self._term(term)
            except NotLeading as over:
                _log.warning("leads no more", why=str(over))
            except Deposed as over:
                _log.warning("deposed: stops at once", why=str(over))
                await ground.env.clock.sleep(jittered(_AFTER, ground.env.random))
            finally:
                ground.metrics.set_leading(False)

    async def _term(self, term: Term) -> None:
        ground, holder = self._ground, self._lease.holder
        rollouts, nodes = ground.informers.rollouts, ground.informers.nodes
        await rollouts.verify_current()
        epoch = next_epoch(rollouts, nodes, in_slots=ground.slot_cache.epoch)
        fenced = FencedTransport(self._transport, term, clock=ground.env.clock)
        kube = Kube(fenced, manager=MANAGER, clock=ground.env.clock)
        term_of = start_term(
            ground, kube=kube, epoch=epoch, holder=holder, plan_runner=self._plan_runner
        )
        async with term_of as work:
            ground.metrics.set_leading(True)
            _log.info("leads", holder=holder, epoch=epoch)
            await work.run()


_CONCURRENT_QUERIES: Final = 4

_log = logger()


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
