"""Act: what was decided is carried out, each node by itself, action by action.

What fails ends the step of its node alone: the node is looked at again a little later, and decided
on anew. Nothing is tried twice here. What is decided is not known here.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from libs.bus.port import BusError
from libs.bus.slot_cache import SlotCache
from libs.bus.slots import SlotOutranked, SlotWriter
from libs.contracts import subjects
from libs.contracts.identities import Writer
from libs.kube.errors import Conflict, KubeError, NotFound, Unavailable
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
from libs.runtime.backoff import Backoff
from libs.runtime.env import Env
from libs.runtime.logs import logger
from services.scheduler.effects.evictions import Evictions
from services.scheduler.effects.writes import Writes
from services.scheduler.events import UpgradeEvents
from services.scheduler.node_state import NodeStates, PreflightRequest, UnconfirmedWrite
from services.scheduler.snapshot.tracker import SnapshotTracker

RETRY_FIRST: Final = 0.5
RETRY_MAX: Final = 15.0
"""Seconds for which a node is left alone after a failed effect, at first and at most."""

_log = logger()


class SlotConflict(Exception):
    """A slot holds what outranks our command."""


class Executor:
    """The effects of one leader."""

    def __init__(
        self,
        writes: Writes,
        *,
        tracker: SnapshotTracker,
        slot_writer: SlotWriter,
        slot_cache: SlotCache,
        evictions: Evictions,
        events: UpgradeEvents,
        node_states: NodeStates,
        env: Env,
        cluster: str,
        verify_source: Callable[[str], Coroutine[Any, Any, None]],
        purge_node: Callable[[str], Coroutine[Any, Any, None]],
    ) -> None:
        self._hands = writes
        self._observing = tracker
        self._slots = slot_writer
        self._slot_book = slot_cache
        self._evicting = evictions
        self._reporting = events
        self._memory = node_states
        self._clock = env.clock
        self._random = env.random
        self._ids = env.ids
        self._cluster = cluster
        self._prove = verify_source
        self._forget = purge_node
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._probing: set[str] = set()

    def execute(self, decision: DecisionDelta) -> None:
        """Begin to; nothing is awaited."""
        for part in decision.probes:
            if part not in self._probing:
                self._probing.add(part)
                self._start(f"prove {part}", self._probe(part))
        for name in decision.cancelled:
            self._evicting.cancel(name)
        for write in decision.rollouts:
            if write.pool in self._memory.writing_rollouts:
                continue  # of one that is being made no view can say so
            self._memory.writing_rollouts.add(write.pool)
            self._observing.mark_pool(write.pool)
            self._start(f"rollout {write.pool}", self._write_rollout(write))
        for pool in self._memory.rollout_errors.keys() - self._memory.writing_rollouts:
            del self._memory.rollout_errors[pool]  # nothing is to be written any more
        for name, step in decision.steps.items():
            if step.actions:
                self._memory.of(name).writing = True
                self._observing.mark_node(name)
                self._start(f"step of {name}", self._step(name, step))

    async def close(self) -> None:
        """Cut off what is under way; it may be carried out or not."""
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        await self._evicting.close()

    def _start(self, what: str, effect: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(effect, name=what)
        self._tasks[task] = None
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, NotLeading):
            _log.error("an effect broke", effect=task.get_name(), exc_info=error)

    async def _probe(self, part: str) -> None:
        try:
            await self._prove(part)
        finally:
            self._probing.discard(part)
            self._observing.wake()

    # Nodes.

    async def _step(self, name: str, step: Step) -> None:
        try:
            for action in step.actions:
                await self._act(name, step, action)
        except NotLeading:
            raise
        except (KubeError, BusError, SlotConflict) as error:
            await self._failed(name, step, error)
        else:
            known = self._memory.of(name)
            known.failure = known.backoff = None
        finally:
            self._memory.of(name).writing = False
            self._observing.mark_node(name)

    async def _failed(self, name: str, step: Step, error: Exception) -> None:
        """Nobody else's business: it is left alone for a moment, and looked at again."""
        known, conflict = self._memory.of(name), isinstance(error, Conflict)
        if not conflict:
            _log.warning("a step failed", node=name, why=str(error), step=step.because)
            known.record_failure(step.because, str(error), at=self._clock.now())
            self._reporting.step_failed(name, step, error)
        if known.backoff is None:
            known.backoff = Backoff(self._random, first=RETRY_FIRST, cap=RETRY_MAX)
        if isinstance(error, NotFound):
            await self._clock.sleep(RETRY_FIRST)  # the watch is about to say so
            return
        if not conflict:
            await self._clock.sleep(RETRY_FIRST / 10 + known.backoff.next())
        if isinstance(error, KubeError):
            await self._hands.refresh_node(name)

    async def _act(self, name: str, step: Step, action: Action) -> None:
        match action:
            case WriteNode():
                await self._write_node(name, step, action)
            case WriteSlot():
                await self._write_slot(name, action)
            case AskPreflight():
                await self._ask(name, action)
            case EvictPods():
                self._evicting.evict(name, action)
            case DeleteDriverPod():
                await self._hands.delete_pod(action.pod)
            case Notice():
                self._reporting.edit_noted(name, action)

    async def _write_node(self, name: str, step: Step, action: WriteNode) -> None:
        before = self._observing.nodes.get(name)
        try:
            view = await self._hands.apply_node(name, action)
        except Unavailable:
            now = self._clock.now()
            self._memory.of(name).unconfirmed = UnconfirmedWrite(revision=action.revision, at=now)
            raise
        self._reporting.node_written(name, before, action, step, view.metadata.resource_version)

    async def _write_slot(self, name: str, action: WriteSlot) -> None:
        of = subjects.Command(cluster=self._cluster, node=name, component=action.component)
        answer = await self._slots.write(of, action.command)
        if isinstance(answer, SlotOutranked):
            held = await self._slots.read(of)
            if held is not None and held.content is not None:
                self._slot_book.learn(name, action.component, held.content, held.sequence)
            raise SlotConflict(
                f"the slot of {action.component} on {name} holds {answer.by.kind}"
                f" {answer.by.order} of epoch {answer.by.epoch}"
            )
        if not self._slot_book.learn(name, action.component, action.command, answer.sequence):
            raise SlotConflict(
                f"the slot of {action.component} on {name} was written, and what is known of it is"
                " newer, or of a stream that was lost: it is read again"
            )

    async def _ask(self, name: str, action: AskPreflight) -> None:
        known = self._memory.of(name)
        before, label = known.preflight, action.check.label
        again = before is not None and (before.boot_id, before.label) == (action.boot_id, label)
        asked = PreflightRequest(
            id=self._ids.new(),
            boot_id=action.boot_id,
            label=label,
            removes=action.check.removes_pods,
            at=self._clock.now(),
            answered=before.answered if before is not None and again else None,
            answer=before.answer if before is not None and again else None,
        )
        known.preflight = asked
        of = subjects.Check(
            cluster=self._cluster,
            node=name,
            component=Writer.DRIVER,
            asker=Writer.SCHEDULER,
        )
        await self._slots.put_check(
            of, action.check, id=asked.id, node_uid=known.uid, boot_id=action.boot_id
        )

    # Nodes that are gone.

    def cancel_node(self, name: str) -> None:
        """It is no node with GPUs any more: nobody of it is asked to leave."""
        self._evicting.cancel(name)

    def purge_node(self, name: str) -> None:
        """What the bus has of a deleted node is of no Node any more."""
        self._evicting.cancel(name)
        self._start(f"purge {name}", self._purge(name))

    async def _purge(self, name: str) -> None:
        if name in self._observing.nodes:
            return  # there is another of that name: what is old bears another uid
        try:
            await self._forget(name)
        except BusError as error:
            _log.warning("a deleted node is still on the bus", node=name, why=str(error))

    # Rollouts.

    async def _write_rollout(self, write: WriteRollout) -> None:
        before = self._observing.pools.get(write.pool)
        try:
            view = await self._hands.write_rollout(write)
        except NotLeading:
            raise
        except KubeError as error:
            if not isinstance(error, Conflict):
                _log.warning("a Rollout was not written", pool=write.pool, why=str(error))
                self._memory.rollout_errors[write.pool] = str(error)
                self._reporting.rollout_failed(write, error)
                await self._clock.sleep(RETRY_FIRST)
            await self._hands.refresh_rollout(write.pool)
        else:
            self._memory.rollout_errors.pop(write.pool, None)
            self._reporting.rollout_written(write, before, view.metadata.resource_version)
        finally:
            self._memory.writing_rollouts.discard(write.pool)
            self._observing.mark_pool(write.pool)
