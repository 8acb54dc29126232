"""Execute decisions: each node's step in a task of its own, action by action.

A failed action ends the step of its node alone. Nothing is retried here: after a pause the node is
decided on again.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace

from libs.bus.port import BusError
from libs.bus.slots import SlotOutranked, SlotWriter
from libs.contracts import subjects
from libs.contracts.identities import Writer
from libs.kube.client import Kube
from libs.kube.errors import KubeError, NotFound, Unavailable
from libs.kube.lease.term import NotLeading
from libs.rollout.decide import DecisionDelta
from libs.rollout.decision import (
    Action,
    AskPreflight,
    DeleteDriverPod,
    EvictPods,
    Notice,
    Step,
    WriteNode,
    WriteRollout,
    WriteSlot,
)
from libs.rollout.preflight import open_query
from libs.runtime.logs import logger
from services.scheduler.effects.evictions import Evictions
from services.scheduler.effects.retries import (
    RETRY_FIRST,
    Retries,
    SlotConflict,
    log_failure,
)
from services.scheduler.effects.writes import Writes
from services.scheduler.events import UpgradeEvents
from services.scheduler.inputs import Inputs
from services.scheduler.node_state import NodeStates, PreflightRequest, UnconfirmedWrite
from services.scheduler.pace import Pace
from services.scheduler.snapshot.tracker import SnapshotTracker

_log = logger()


class Executor:
    """The effects of one leader."""

    def __init__(
        self,
        inputs: Inputs,
        kube: Kube,
        *,
        tracker: SnapshotTracker,
        events: UpgradeEvents,
        node_states: NodeStates,
    ) -> None:
        self._inputs = inputs
        self._env = inputs.env
        self._clock = inputs.env.clock
        self._cluster = inputs.bus.identity.cluster
        self._slot_writer = SlotWriter(bus=inputs.bus, clock=inputs.env.clock)
        self._tracker = tracker
        self._events = events
        self._node_states = node_states
        self._writes = Writes(kube, informers=inputs.informers, metrics=inputs.metrics)
        self._evictions = Evictions(
            self._writes,
            node_states=node_states,
            env=inputs.env,
            on_change=tracker.mark_node,
            on_answer=events.eviction_answered,
        )
        self._pace = Pace()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._probing: set[str] = set()

    def execute(self, decision: DecisionDelta) -> None:
        """Start to carry out a decision, without waiting for it."""
        for source in decision.probes:
            if source not in self._probing:
                self._probing.add(source)
                self._start(f"verify {source}", self._probe(source))
        for name in decision.cancelled:
            self._evictions.cancel(name)
        states = self._node_states
        for write in decision.rollouts:
            if write.pool in states.writing_rollouts:
                continue  # a Rollout that is being created has no view to mark as pending
            states.writing_rollouts.add(write.pool)
            self._tracker.mark_pool(write.pool)
            self._start(f"rollout {write.pool}", self._write_rollout(write))
        for pool in states.rollout_errors.keys() - states.writing_rollouts:
            del states.rollout_errors[pool]  # there is nothing left to write
            states.rollout_retries.pop(pool, None)
        for name, step in decision.steps.items():
            if step.actions:
                states.state_of(name).writing = True
                self._tracker.mark_node(name)
                self._start(f"step of {name}", self._step(name, step))

    def cancel_node(self, name: str) -> None:
        """Cancel the evictions of a node that has no GPUs any more."""
        self._evictions.cancel(name)

    def purge_node(self, name: str) -> None:
        """Remove what the bus has of a deleted node."""
        self._evictions.cancel(name)
        self._start(f"purge {name}", self._purge(name))

    async def close(self) -> None:
        """Cancel all effects; requests in progress may or may not be carried out."""
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        await self._evictions.close()

    def _start(self, name: str, effect: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(effect, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, NotLeading):
            _log.error("unexpected error in an effect", effect=task.get_name(), exc_info=error)

    async def _probe(self, source: str) -> None:
        try:
            await self._inputs.informers.verify_source(source)
        finally:
            self._probing.discard(source)
            self._inputs.wake_signal.notify()

    async def _purge(self, name: str) -> None:
        if name in self._tracker.nodes:
            return  # a new Node has the name; what is left of the old one has another uid
        try:
            await self._inputs.purge_node(name)
        except BusError as error:
            _log.warning("deleted node not purged from the bus", node=name, why=str(error))

    # Nodes.

    async def _step(self, name: str, step: Step) -> None:
        try:
            for action in step.actions:
                await self._act(name, step, action)
        except NotLeading:
            raise
        except Exception as error:  # noqa: BLE001  (a defect too is shown on its node)
            await self._step_failed(name, step, error)
        else:
            state = self._node_states.state_of(name)
            state.failure = state.retries = None
        finally:
            self._node_states.state_of(name).writing = False
            self._tracker.mark_node(name)

    async def _step_failed(self, name: str, step: Step, error: Exception) -> None:
        """Record the failure, and pause; after a failed request, refresh the Node."""
        state = self._node_states.state_of(name)
        retries = state.retries = state.retries or Retries(self._env.random)
        at_once = retries.may_retry_at_once(error)
        if not at_once:
            why = log_failure(error, effect="step", node=name, step=step.because)
            state.record_failure(step.because, why, at=self._clock.now())
            self._events.step_failed(name, step, why)
        if isinstance(error, NotFound):
            await self._clock.sleep(RETRY_FIRST)  # the watch shows the deletion soon
            return
        if not at_once:
            await self._clock.sleep(retries.next_pause())
        if isinstance(error, KubeError):
            await self._writes.refresh_node(name)

    async def _act(self, name: str, step: Step, action: Action) -> None:
        match action:
            case WriteNode():
                await self._write_node(name, step, action)
            case WriteSlot():
                await self._write_slot(name, action)
            case AskPreflight():
                await self._ask_preflight(name, action)
            case EvictPods():
                self._evictions.evict(name, action)
            case DeleteDriverPod():
                await self._writes.delete_pod(action.pod)
                self._node_states.state_of(name).deleted_pod_uid = action.pod.uid
            case Notice():
                self._events.edit_noted(name, action)

    async def _write_node(self, name: str, step: Step, action: WriteNode) -> None:
        before = self._tracker.nodes.get(name)
        try:
            node = await self._writes.apply_node(name, action)
        except Unavailable:
            self._node_states.state_of(name).unconfirmed = UnconfirmedWrite(
                revision=action.revision, at=self._clock.now()
            )
            raise
        self._events.node_written(name, before, action, step, node.metadata.resource_version)

    async def _write_slot(self, name: str, action: WriteSlot) -> None:
        slot = subjects.Command(cluster=self._cluster, node=name, component=action.component)
        cache = self._inputs.slot_cache
        answer = await self._slot_writer.write(slot, action.command)
        if isinstance(answer, SlotOutranked):
            stored = await self._slot_writer.read(slot)
            if stored is not None and stored.content is not None:
                cache.record_write(name, action.component, stored.content, stored.sequence)
            raise SlotConflict(
                f"the slot of {action.component} on {name} has a command that outranks this one:"
                f" {answer.by.kind} {answer.by.order} of epoch {answer.by.epoch}"
            )
        if not cache.record_write(name, action.component, action.command, answer.sequence):
            raise SlotConflict(
                f"the slot of {action.component} on {name} was written, but the cached command is"
                " newer, or the stream was lost meanwhile; the slot is read again"
            )

    async def _ask_preflight(self, name: str, action: AskPreflight) -> None:
        state = self._node_states.state_of(name)
        before = state.preflight
        query = None if before is None or before.boot_id != action.boot_id else before.query
        state.preflight = PreflightRequest(
            id=self._env.ids.new(),
            boot_id=action.boot_id,
            query=open_query(action, query, self._clock.now()),
        )
        if action.awaits_pods:
            return  # the pods of a node with a request are followed
        check = subjects.Check(
            cluster=self._cluster,
            node=name,
            component=Writer.DRIVER,
            asker=Writer.SCHEDULER,
        )
        await self._slot_writer.put_check(
            check,
            action.check,
            id=state.preflight.id,
            node_uid=state.uid,
            boot_id=action.boot_id,
        )

    # Rollouts.

    async def _write_rollout(self, write: WriteRollout) -> None:
        before = self._tracker.pools.get(write.pool)
        now = self._clock.now()
        stored = before.rollout.status if before is not None and before.rollout else None
        eta = ""
        if write.has_known_end:
            eta = self._pace.eta(write.pool, stored, write.status, now)
        write = replace(write, status=replace(write.status, eta=eta))
        try:
            rollout = await self._writes.write_rollout(write)
        except NotLeading:
            raise
        except Exception as error:  # noqa: BLE001  (a defect too is shown in the status)
            await self._rollout_failed(write, error)
            await self._writes.refresh_rollout(write.pool)
        else:
            self._node_states.rollout_errors.pop(write.pool, None)
            self._node_states.rollout_retries.pop(write.pool, None)
            self._pace.written(write.pool, stored, write.status, now)
            self._events.rollouts.written(write, before, rollout.metadata.resource_version)
        finally:
            self._node_states.writing_rollouts.discard(write.pool)
            self._tracker.mark_pool(write.pool)

    async def _rollout_failed(self, write: WriteRollout, error: Exception) -> None:
        """Record the failure, and pause."""
        states = self._node_states
        retries = states.rollout_retries.setdefault(write.pool, Retries(self._env.random))
        if retries.may_retry_at_once(error):
            return
        why = log_failure(error, effect="write of a Rollout", pool=write.pool)
        states.rollout_errors[write.pool] = why
        self._events.rollouts.failed(write, why)
        await self._clock.sleep(retries.next_pause())
