"""The scheduler's role: follows the cluster and the bus; observes, decides and acts while it leads.

A leader decides when something changed or came due; changes that come together are decided on
together.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Annotated, Final

import msgspec

from libs.bus.port import Bus
from libs.bus.queries import QueryHandlers, QueryResponder
from libs.bus.streams import streams_with
from libs.contracts.identities import Writer
from libs.contracts.node import MANAGER, NodeRecord
from libs.contracts.queries import QueryVerb
from libs.kube.client import Kube
from libs.kube.lease.election import Deposed
from libs.kube.requests import Transport
from libs.rollout.decide import Decider
from libs.rollout.views.fleet import Fleet
from libs.runtime.clock import Backoff
from libs.runtime.env import Env
from libs.runtime.fatal import describe_error
from libs.runtime.logs import logger
from libs.runtime.service import Service
from services.cluster_role import LeadingSettings, candidate_for
from services.scheduler.clocks import clock_texts
from services.scheduler.effects.executor import Executor
from services.scheduler.events import UpgradeEvents
from services.scheduler.inputs import Inputs
from services.scheduler.job_lengths import JobLengthsLearner
from services.scheduler.journals import JournalCollector
from services.scheduler.node_state import NodeStates
from services.scheduler.plan_pods import with_pods
from services.scheduler.plan_process import PlanRunner, run_in_process
from services.scheduler.queries import SchedulerQueries
from services.scheduler.resources import Node, Rollout
from services.scheduler.snapshot.tracker import SnapshotTracker
from services.scheduler.wait_events import read_last_waits

LEASE = "sluice-scheduler"


class SchedulerSettings(LeadingSettings, frozen=True, kw_only=True):
    """Settings of the scheduler."""

    pod_name: str = "scheduler"
    stream_replicas: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    """NATS servers that keep a copy of each stream; a cluster of three loses nothing with 3."""
    stream_origin: str = ""
    """Tag of the NATS server that has the streams if it was the only one before; empty: none."""


async def run(
    settings: SchedulerSettings,
    *,
    env: Env,
    bus: Bus,
    kube: Transport,
    service: Service,
    plan_runner: PlanRunner = run_in_process,
) -> None:
    """Follow the cluster and the bus; upgrade nodes while leading."""
    candidate = candidate_for(LEASE, settings, kube=kube, manager=MANAGER, env=env)
    inputs = Inputs(
        candidate.kube,
        bus,
        namespace=settings.namespace,
        streams=streams_with(settings.stream_replicas, origin=settings.stream_origin),
        env=env,
    )

    async def lead(fenced: Kube) -> None:
        inputs.set_clock(server_ahead=candidate.server_ahead)
        await lead_term(inputs, kube=fenced, holder=candidate.holder, plan_runner=plan_runner)

    async def sync_and_lead() -> None:
        await inputs.wait_for_sync()
        await candidate.run(lead, on_term_end=lambda: inputs.metrics.set_leading(False))

    await inputs.open(service)
    inputs.start(service)
    service.run_forever("lead", sync_and_lead())


RESYNC: Final = 5.0
"""Maximum seconds between decisions: ages and silence grow without any change."""
MIN_WAIT: Final = 0.001
"""Minimum seconds between decisions, so that overdue timers cannot spin."""
CONCURRENT_QUERIES: Final = 4

PLAUSIBLE_LEAP: Final = 1_000_000
"""How far an epoch in a Node may be above all that only schedulers write."""

_log = logger()


async def lead_term(inputs: Inputs, *, kube: Kube, holder: str, plan_runner: PlanRunner) -> None:
    """Lead until cancelled or deposed; `kube` is fenced by the lease."""
    rollouts, nodes = inputs.informers.rollouts, inputs.informers.nodes
    earlier_waits = await read_last_waits(inputs.bus)
    await rollouts.verify_current()
    epoch = next_epoch(rollouts, nodes, in_slots=inputs.slot_cache.epoch)
    node_states = NodeStates()
    tracker = SnapshotTracker(inputs, node_states)
    async with AsyncExitStack() as stack:
        stack.callback(tracker.subscribe())
        stack.callback(inputs.on_node_change(tracker.mark_node))
        stack.callback(inputs.pod_cache.follow, ())
        events = UpgradeEvents(inputs, node_states, epoch=epoch, earlier_waits=earlier_waits)
        events.leader_started(holder)
        stack.callback(rollouts.cache.on_change(events.rollouts.changed))
        executor = Executor(inputs, kube, tracker=tracker, events=events, node_states=node_states)
        loop = LeaderLoop(inputs, tracker=tracker, executor=executor, events=events, epoch=epoch)
        job_lengths = JobLengthsLearner(
            bus=inputs.bus, kube=kube, env=inputs.env, pools=tracker.pools, nodes=tracker.nodes
        )
        queries = SchedulerQueries(
            tracker=tracker,
            waits=lambda: loop.decider.waits,
            is_skipped=loop.decider.is_skipped,
            history=events.history,
            rollout_errors=node_states.rollout_errors,
            instant=lambda: inputs.instant(epoch),
            clocks=partial(clock_texts, inputs),
            holder=holder,
            plan_pods=partial(
                with_pods,
                kube=kube,
                namespace=inputs.namespace,
                claim_of=inputs.informers.resource_claims.cache.get,
                absent_agents=lambda: tracker.pool_snapshot.absent_agents,
                nodes=lambda: inputs.informers.nodes.cache,
            ),
            plan_runner=plan_runner,
            on_plan=events.planned,
            job_lengths=job_lengths.of,
        )
        journals = JournalCollector(
            bus=inputs.bus,
            env=inputs.env,
            reports=inputs.reports,
            heartbeats=inputs.heartbeats,
            slot_cache=inputs.slot_cache,
            find_node=tracker.nodes.get,
        )
        await stack.enter_async_context(job_lengths.learning())
        await stack.enter_async_context(_serve_queries(inputs, queries.handlers(), journals))
        inputs.metrics.set_leading(True)
        _log.info("leading", holder=holder, epoch=epoch)
        await loop.run()


def next_epoch(rollouts: Iterable[Rollout], nodes: Iterable[Node], *, in_slots: int) -> int:
    """Return one above the highest epoch in Rollouts, Nodes and command slots.

    A kubelet may write the record of its own Node: no record can use up the epochs.
    """
    known = max([in_slots, *(rollout.status.epoch for rollout in rollouts)])
    records = (node.record for node in nodes)
    in_nodes = (record.epoch for record in records if isinstance(record, NodeRecord))
    return 1 + max([known, *(epoch for epoch in in_nodes if epoch <= known + PLAUSIBLE_LEAP)])


@asynccontextmanager
async def _serve_queries(
    inputs: Inputs, handlers: QueryHandlers, journals: JournalCollector
) -> AsyncGenerator[None]:
    """Serve queries from when the bus is there, which may be long after the term began."""
    responder = QueryResponder(
        bus=inputs.bus,
        env=inputs.env,
        name=Writer.SCHEDULER.value,
        version=version("sluice"),
        handlers={**handlers, QueryVerb.JOURNAL: journals.answer},
        concurrent=CONCURRENT_QUERIES,
    )
    async with AsyncExitStack() as stack:
        serving = asyncio.create_task(
            _subscribe(stack, inputs, responder, journals), name="queries"
        )
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.wait({serving})
            inputs.metrics.set_serving(False)


async def _subscribe(
    stack: AsyncExitStack, inputs: Inputs, responder: QueryResponder, journals: JournalCollector
) -> None:
    backoff = Backoff(inputs.env.random, cap=10.0)
    while True:
        async with AsyncExitStack() as attempt:
            try:
                await attempt.enter_async_context(journals.follow())
                await attempt.enter_async_context(responder)
            except Exception as error:  # noqa: BLE001  (a defect here must not end a term)
                _log.warning("queries are not served yet", why=describe_error(error))
            else:
                stack.push_async_exit(attempt.pop_all())
                return inputs.metrics.set_serving(True)
        await inputs.env.clock.sleep(backoff.next())


class LeaderLoop:
    def __init__(
        self,
        inputs: Inputs,
        *,
        tracker: SnapshotTracker,
        executor: Executor,
        events: UpgradeEvents,
        epoch: int,
    ) -> None:
        self._inputs = inputs
        self._metrics = inputs.metrics
        self._clock = inputs.env.clock
        self._tracker = tracker
        self._executor = executor
        self._events = events
        self._epoch = epoch
        self.decider = Decider(Fleet(pools={}, nodes={}))

    async def run(self) -> None:
        """Decide until cancelled or deposed."""
        swept_at = self._clock.monotonic()
        try:
            while True:
                now = self._clock.monotonic()
                if now - swept_at >= RESYNC:
                    self._tracker.sweep()
                    swept_at = now
                seconds = self._decide()
                # The longer a decision takes, the longer changes are collected for the next one.
                await self._clock.sleep(self._clock.monotonic() - now)
                await self._inputs.wake_signal.wait(min(RESYNC, seconds))
        finally:
            await self._executor.close()

    def _decide(self) -> float:
        """Decide and start the effects; return the seconds until the next decision is due."""
        started = self._clock.monotonic()
        self._apply_changes()
        now = self._inputs.instant(self._epoch)
        in_slots = self._inputs.slot_cache.epoch
        if in_slots > now.epoch:
            raise Deposed(f"the leader of epoch {in_slots} has written a command slot")
        decision = self.decider.decide(now)
        pools = self._tracker.pools
        if decision.deposed:
            in_rollouts = max(pool.rollout.status.epoch for pool in pools.values() if pool.rollout)
            raise Deposed(f"the leader of epoch {in_rollouts} has written a Rollout")
        self._metrics.set_machine_ahead(self._inputs.clock.machine_ahead)
        self._metrics.decided(self._clock.monotonic() - started, decision.budgets, pools)
        self._events.decided(decision, self.decider.waits)
        self._executor.execute(decision)
        return RESYNC if decision.wake_at is None else max(MIN_WAIT, decision.wake_at - now.at)

    def _apply_changes(self) -> None:
        changes = self._tracker.changes()
        self.decider.update(changes.nodes, changes.nodes_gone, changes.pools, changes.pools_gone)
        self._metrics.nodes_changed(changes.nodes, changes.nodes_gone)
        self._events.nodes_changed(changes.nodes, changes.nodes_gone)
        self._events.pools_changed(changes.pools)
        for name in changes.nodes_gone:
            self._executor.cancel_node(name)
        for name in sorted(self._tracker.to_purge):
            self._executor.purge_node(name)
        self._tracker.to_purge.clear()
