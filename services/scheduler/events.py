"""Report upgrades: Kubernetes Events, events on the bus, metrics. No decision depends on them.

A Kubernetes Event is recorded for each new state label, in the words of the GPU Operator, and for
waits that somebody has to end, or that last (`wait_events.py`). Texts name drivers by version.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import asdict, replace

from libs.contracts.events import (
    NOT_WAITING,
    STILL_WAITING,
    EditEvent,
    EvictionEvent,
    LeaderEvent,
    StepEvent,
    WaitEvent,
)
from libs.contracts.node import MigState, NodeRecord
from libs.contracts.queries import PlanAnswer
from libs.contracts.waits import RESOLVED_BY, WaitCode, is_for_people
from libs.kube.events import InvolvedObject
from libs.rollout.decide import DecisionDelta
from libs.rollout.decision import Notice, Step, Wait, WriteNode
from libs.rollout.mig_at_rest import describe_mig_state
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from services.scheduler.cordons import Cordons
from services.scheduler.drained import drained_seconds
from services.scheduler.driver_names import DriverNames
from services.scheduler.inputs import Inputs
from services.scheduler.node_state import FAILURES_UNTIL_REFUSED, NodeStates
from services.scheduler.persons_leases import PersonsLeases
from services.scheduler.plan_events import plan_events
from services.scheduler.rollout_events import REASON, RolloutEvents
from services.scheduler.rollout_texts import (
    with_commands,
)
from services.scheduler.wait_events import LastWait, WaitEvents

MIG_REASON: Final = "MIGConfig"
HISTORY_LENGTH: Final = 20
"""Entries of each node's history, which the query `why` returns."""


class PastStep(NamedTuple):
    """What happened to a node."""

    at: float
    text: str


class UpgradeEvents:
    """The reports of one leader."""

    def __init__(
        self,
        inputs: Inputs,
        node_states: NodeStates,
        *,
        epoch: int,
        earlier_waits: Mapping[str, LastWait] | None,
    ) -> None:
        self._kube_events = inputs.kube_events
        self._publisher = inputs.publisher
        self._metrics = inputs.metrics
        self._clock = inputs.env.clock
        self._node_states = node_states
        self._epoch = epoch
        self._term = inputs.env.ids.new()[:12]
        self._count = 0
        self._wait_events = WaitEvents(
            inputs.kube_events, started_at=inputs.env.clock.now(), earlier=earlier_waits
        )
        self._drivers = DriverNames()
        self.rollouts = RolloutEvents(inputs.kube_events, inputs.publisher, self._drivers)
        self._cordons = Cordons()
        self._persons_leases = PersonsLeases()
        self._uids: dict[str, str] = {}
        self._pools: dict[str, str] = {}
        self._targets: dict[str, str] = {}
        """The target of each node's last attempt."""
        self.history: dict[str, list[PastStep]] = {}

    def leader_started(self, holder: str) -> None:
        message = f"{holder} is the leader (epoch {self._epoch})"
        event = LeaderEvent(holder=holder, epoch=self._epoch)
        self._publisher.publish(event, id=f"leader/{self._epoch}/{holder}", message=message)

    def nodes_changed(self, nodes: Iterable[NodeView], gone: Iterable[str]) -> None:
        for name in gone:
            self._forget(name)
        for node in nodes:
            if self._uids.get(node.name) != node.uid:
                self._forget(node.name)
            record = node.record
            recorded = record.pool if isinstance(record, NodeRecord) else ""
            self._uids[node.name] = node.uid
            self._pools[node.name] = recorded or node.pool
            self._targets[node.name] = record.target if isinstance(record, NodeRecord) else ""
            for change in (
                self._cordons.change_of(node),
                self._persons_leases.change_of(node, now=self._clock.now()),
            ):
                if change is not None:
                    self._edited(node.name, change, change.done)

    def pools_changed(self, pools: Iterable[PoolView]) -> None:
        for pool in pools:
            self._drivers.add(pool)

    def _forget(self, name: str) -> None:
        self._metrics.set_wait(name, None)
        self._wait_events.forget(name)
        self._cordons.forget(name)
        self._persons_leases.forget(name)
        for by_name in (self._uids, self._pools, self._targets, self.history):
            by_name.pop(name, None)

    def decided(self, decision: DecisionDelta, waits: Mapping[str, Wait]) -> None:
        """Report the waits that changed, and those among all that have lasted by now."""
        for name in decision.no_longer_waiting:
            self._set_wait(name, None)
        for name, wait in decision.waits.items():
            self._set_wait(name, wait)
        for name, step in decision.steps.items():
            self._set_wait(name, self._refused_wait(name, step) or step.wait)
        for name in self._wait_events.lasting(self._clock.now()):
            wait = waits.get(name) or self._node_states.state_of(name).waiting
            if wait is not None:
                self._tell_lasting(name, wait)

    def _tell_lasting(self, name: str, wait: Wait) -> None:
        wait = replace(wait, detail=self._drivers.named(wait.detail))
        uid, now = self._uids.get(name, ""), self._clock.now()
        if self._wait_events.tell_lasting(name, uid, wait, now):
            self._publish_wait(name, wait, f"{name}: {STILL_WAITING}{wait.detail}")

    def _refused_wait(self, name: str, step: Step) -> Wait | None:
        """Return the wait of a step that failed several times in a row."""
        failure = self._node_states.state_of(name).failure
        if (
            failure is None
            or failure.step != step.because
            or failure.count < FAILURES_UNTIL_REFUSED
        ):
            return None
        detail = f"failed {failure.count} times ({step.because}); last error: {failure.why}"
        resolver = RESOLVED_BY[WaitCode.REFUSED]
        return Wait(code=WaitCode.REFUSED, detail=detail, since=failure.since, who=resolver)

    def _set_wait(self, name: str, wait: Wait | None) -> None:
        state = self._node_states.state_of(name)
        before, state.waiting = state.waiting, wait
        if not _is_change(before, wait):
            return
        self._metrics.set_wait(name, None if wait is None else wait.code)
        if wait is None:
            self._wait_events.ended(name)
            self._publish_wait(name, None, f"{name}: {NOT_WAITING}")
        else:
            wait = replace(wait, detail=self._drivers.named(wait.detail))
            release = self._drivers.release(self._pools.get(name, ""), self._targets.get(name, ""))
            told = replace(wait, who=with_commands(wait.who, node=name, release=release))
            self._wait_events.began(name, self._uids.get(name, ""), told, self._clock.now())
            self._publish_wait(name, wait, f"{name}: {wait.detail}")

    def _publish_wait(self, name: str, wait: Wait | None, message: str) -> None:
        uid = self._uids.get(name, "")
        event = WaitEvent(
            pool=self._pools.get(name, ""),
            told=self._wait_events.told(name, uid, self._clock.now()),
            **({} if wait is None else asdict(wait)),
        )
        self._publish(name, event, message, id=self._next_id("wait"))

    def node_written(
        self, name: str, before: NodeView | None, write: WriteNode, step: Step, revision: str
    ) -> None:
        """Report a written Node: its new state, and how long the one before lasted."""
        state_before = before.state if before is not None else ""
        state = write.applied.state
        self._add_to_history(name, step.because)
        self._mig_state_written(name, before, write)
        if state == state_before:
            return
        record_before = before.record if before is not None else None
        if isinstance(record_before, NodeRecord) and record_before.since:
            seconds = self._clock.now() - record_before.since
            self._metrics.state_left(state_before, seconds)
        drained = drained_seconds(before, write.applied, now=self._clock.now())
        if drained is not None:
            self._metrics.node_upgraded(drained)
        self._record(name, write, f"Successfully updated node state label to {state or 'null'}")
        pool = self._pools.get(name, "")
        record = write.applied.record or NodeRecord(node_uid="", epoch=0, token=0, pool=pool)
        event = StepEvent(
            pool=record.pool,
            token=record.token,
            before=state_before,
            after=state,
            target=record.target,
            cause=record.cause,
            revision=revision,
        )
        self._publish(name, event, step.because, id=f"step/{write.uid}/{revision}")

    def _mig_state_written(self, name: str, before: NodeView | None, write: WriteNode) -> None:
        state = write.applied.mig_state
        if before is None or not state or state == before.mig_state:
            return
        text = describe_mig_state(before.mig, write.applied.record, state)
        self._record(name, write, text, is_bad=state == MigState.FAILED, reason=MIG_REASON)

    def step_failed(self, name: str, step: Step, why: str) -> None:
        """Report a failed step that writes the Node."""
        write = next((action for action in step.actions if isinstance(action, WriteNode)), None)
        if write is not None:
            state = write.applied.state
            text = self._drivers.named(f"Failed to update node state label to {state}, {why}")
            self._record(name, write, text, is_bad=True, group=f"failed {state}")

    def _record(
        self,
        name: str,
        write: WriteNode,
        message: str,
        *,
        is_bad: bool = False,
        reason: str = REASON,
        group: str = "",
    ) -> None:
        """Record a Kubernetes Event about a write to a Node."""
        node = InvolvedObject(kind="Node", name=name, uid=write.uid)
        kind = "Warning" if is_bad else "Normal"
        self._kube_events.record(node, type=kind, reason=reason, message=message, group=group)

    def edit_noted(self, name: str, note: Notice) -> None:
        """Report an edit by another field manager, and how the scheduler responds."""
        event = EditEvent(
            field=note.field,
            manager=note.manager,
            before=note.before,
            after=note.after,
            done=note.message,
        )
        self._edited(name, event, note.message)

    def _edited(self, name: str, event: EditEvent, message: str) -> None:
        self._add_to_history(name, message)
        self._publish(name, event, message, id=self._next_id("edit"))

    def eviction_answered(self, name: str, message: str, event: EvictionEvent) -> None:
        event_id = f"eviction/{event.pod_uid}/{event.answer}"
        if event.answer != "evicted":
            event_id = self._next_id(event_id)
        self._publish(name, event, message, id=event_id)

    def planned(self, answer: PlanAnswer, version: str) -> None:
        """Keep a plan among the events, for a comparison with what happens then."""
        parts = plan_events(answer, self._next_id("plan"), version=version)
        for event, event_id, message in parts:
            self._publisher.publish(event, id=event_id, message=message)

    def _publish(
        self,
        name: str,
        event: WaitEvent | StepEvent | EditEvent | EvictionEvent,
        message: str,
        *,
        id: str,
    ) -> None:
        self._publisher.publish(
            event,
            id=id,
            message=self._drivers.named(message),
            node=name,
            node_uid=self._uids.get(name, ""),
        )

    def _add_to_history(self, name: str, text: str) -> None:
        history = self.history.setdefault(name, [])
        history.append(PastStep(self._clock.now(), text))
        del history[:-HISTORY_LENGTH]

    def _next_id(self, prefix: str) -> str:
        """Unique by term, not by epoch: leaders share an epoch until one of them writes it."""
        self._count += 1
        return f"{prefix}/{self._term}/{self._count}"


def _is_change(before: Wait | None, wait: Wait | None) -> bool:
    """Whether the code changed, or the wait is for people now and was not before."""
    if before is None or wait is None or before.code != wait.code:
        return before is not wait
    return is_for_people(wait.code, wait.who) and not is_for_people(before.code, before.who)
