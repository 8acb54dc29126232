"""Report: what was done and why things wait, as Events for kubectl, events on the bus, and figures.

Kubernetes Events are one per state shown, in the words that operators already look for. Nothing is
ever decided from any of this.
"""

from collections.abc import Iterable
from typing import Final

from libs.bus.events import EventPublisher
from libs.contracts.events import EditEvent, EvictionEvent, GrantEvent, LeaderEvent, RolloutEvent
from libs.contracts.events import StepEvent as Stepped
from libs.contracts.events import WaitEvent as Waits
from libs.contracts.node import NodeRecord
from libs.contracts.rollout import RolloutPhase
from libs.contracts.waits import WaitCode
from libs.kube.events import EventRecorder, InvolvedObject
from libs.rollout.decide import DecisionDelta
from libs.rollout.decision import Notice, Step, Wait, WriteNode, WriteRollout
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import RESOLVED_BY
from libs.runtime.env import Env
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.node_state import NodeStates
from services.scheduler.resources import ROLLOUTS, Rollout

REASON: Final = "GPUDriverUpgrade"
_MADE: Final = "its Rollout is made: how far it is stands there"
FAILURES_UNTIL_REFUSED: Final = 3
"""After so many that failed, a node waits for what refuses them."""
HISTORY_LENGTH: Final = 20
"""So much of what happened to a node is told to whoever asks why."""


class UpgradeEvents:
    """Of one leader."""

    def __init__(
        self,
        *,
        kube_events: EventRecorder,
        publisher: EventPublisher,
        metrics: SchedulerMetrics,
        node_states: NodeStates,
        env: Env,
        epoch: int,
    ) -> None:
        self._events = kube_events
        self._telling = publisher
        self._meters = metrics
        self._memory = node_states
        self._clock = env.clock
        self._epoch = epoch
        self._term = env.ids.new()[:12]
        self._count = 0
        self._uids: dict[str, str] = {}
        self._pools: dict[str, str] = {}
        self.history: dict[str, list[str]] = {}

    def leader_started(self, holder: str) -> None:
        """A new leader begins."""
        message = f"{holder} leads, with epoch {self._epoch}"
        body = LeaderEvent(holder=holder, epoch=self._epoch)
        self._telling.publish(body, id=f"leader/{self._epoch}/{holder}", message=message)

    def nodes_changed(self, nodes: Iterable[NodeView], gone: Iterable[str]) -> None:
        """These are others than before."""
        for name in gone:
            self._forget(name)
        for node in nodes:
            if self._uids.get(node.name) != node.uid:
                self._forget(node.name)
            self._uids[node.name] = node.uid
            self._pools[node.name] = _pool(node)

    def _forget(self, name: str) -> None:
        """It is gone, whether or not another one of its name is there."""
        self._meters.set_wait(name, None)
        for known in (self._uids, self._pools, self.history):
            known.pop(name, None)

    # Decisions.

    def decided(self, decision: DecisionDelta) -> None:
        """Reasons to wait, where they are others than before."""
        for name in decision.no_longer_waiting:
            self._waits(name, None)
        for name, wait in decision.waits.items():
            self._waits(name, wait)
        for name, step in decision.steps.items():
            self._waits(name, self._hindered(name, step) or step.wait)

    def _hindered(self, name: str, step: Step) -> Wait | None:
        """That the step is not let through, if it was tried more than once or twice."""
        trouble = self._memory.of(name).failure
        if (
            trouble is None
            or trouble.step != step.because
            or trouble.count < FAILURES_UNTIL_REFUSED
        ):
            return None
        detail = f"{step.because}: failed {trouble.count} times, at last with: {trouble.why}"
        who = RESOLVED_BY[WaitCode.REFUSED]
        return Wait(code=WaitCode.REFUSED, detail=detail, since=trouble.since, who=who)

    def _waits(self, name: str, wait: Wait | None) -> None:
        known = self._memory.of(name)
        before, known.waiting = known.waiting, wait
        code = None if wait is None else wait.code
        if (None if before is None else before.code) == code:
            return
        self._meters.set_wait(name, code)
        if wait is None:
            body, message = Waits(pool=self._pools.get(name, "")), f"{name} waits no more"
        else:
            body = Waits(
                pool=self._pools.get(name, ""),
                code=wait.code,
                detail=wait.detail,
                since=wait.since,
                until=wait.until,
                who=wait.who,
            )
            message = f"{name} waits: {wait.code.value}: {wait.detail}"
        self._tell_of(name, body, message, id=self._next("wait"))

    # Effects.

    def node_written(
        self, name: str, before: NodeView | None, write: WriteNode, step: Step, revision: str
    ) -> None:
        """A Node says what it is to say."""
        was = before.state if before is not None else ""
        state = write.applied.state
        self._remember(name, step.because)
        if state == was:
            return
        record = write.applied.record
        old = before.record if before is not None else None
        if isinstance(old, NodeRecord) and old.since:
            self._meters.state_left(was, self._clock.now() - old.since)
        about = _about(name, write.uid)
        message = f"Successfully updated node state label to {state or 'null'}"
        self._events.record(about, type="Normal", reason=REASON, message=message)
        body = Stepped(
            pool=record.pool if record is not None else self._pools.get(name, ""),
            token=record.token if record is not None else 0,
            before=was,
            after=state,
            target=record.target if record is not None else "",
            cause=record.cause if record is not None else "",
            revision=revision,
        )
        self._tell_of(name, body, step.because, id=f"step/{write.uid}/{revision}")

    def step_failed(self, name: str, step: Step, error: Exception) -> None:
        """An effect was refused, or not answered."""
        write = next((one for one in step.actions if isinstance(one, WriteNode)), None)
        if write is not None:
            state = write.applied.state
            message = f"Failed to update node state label to {state}, {error}"
            self._events.record(
                _about(name, write.uid),
                type="Warning",
                reason=REASON,
                message=message,
                group=f"failed {state}",
            )

    def rollout_failed(self, write: WriteRollout, error: Exception) -> None:
        """A Rollout was refused, or not answered; of one that is not there no Event can be."""
        if write.uid:
            about = InvolvedObject(
                api_version=ROLLOUTS.api_version,
                kind=ROLLOUTS.kind,
                name=write.pool,
                uid=write.uid,
            )
            message = f"Failed to write its status ({write.because}): {error}"
            self._events.record(
                about, type="Warning", reason=REASON, message=message, group="failed"
            )

    def edit_noted(self, name: str, note: Notice) -> None:
        """What somebody else did, and what was done about it."""
        body = EditEvent(
            field=note.field,
            manager=note.manager,
            before=note.before,
            after=note.after,
            done=note.message,
        )
        self._remember(name, note.message)
        self._tell_of(name, body, note.message, id=self._next("edit"))

    def eviction_answered(self, name: str, message: str, body: EvictionEvent) -> None:
        """A pod was asked to leave, and this was answered."""
        once = f"eviction/{body.pod_uid}/{body.answer}"
        again = body.answer != "evicted"
        self._tell_of(name, body, message, id=self._next(once) if again else once)

    def rollout_written(self, write: WriteRollout, before: PoolView | None, revision: str) -> None:
        """A Rollout says what it is to say."""
        status, rollout = write.status, before.rollout if before is not None else None
        if write.granted:
            grant = GrantEvent(
                pool=write.pool,
                target=status.target,
                epoch=status.epoch,
                nodes=write.granted,
                limit=status.counts.limit,
                unavailable=status.counts.unavailable,
            )
            message = f"{write.pool}: {', '.join(write.granted)} may start"
            self._telling.publish(grant, id=f"grant/{write.pool}/{revision}", message=message)
        was = rollout.status if rollout is not None else None
        if was is not None and (was.phase, was.target) == (status.phase, status.target):
            return
        change = RolloutEvent(
            pool=write.pool,
            target=status.target,
            before="" if was is None else was.phase.value,
            after=status.phase.value,
            because=status.because or write.because,
            failed=status.counts.failed,
            done=status.counts.done,
            total=status.counts.total,
        )
        said = _MADE if was is None else _phase(change)
        message = f"{write.pool}: {said}"
        self._telling.publish(change, id=f"rollout/{write.pool}/{revision}", message=message)

    def rollout_changed(self, before: Rollout | None, after: Rollout | None) -> None:
        """Somebody may have set the brake of a pool, or released a halt: its Rollout is another."""
        if before is None or after is None or before.metadata.uid != after.metadata.uid:
            return
        self._set(after, "brake", before.spec.brake.value, after.spec.brake.value)
        self._set(after, "release", _accepted(before), _accepted(after))

    def _set(self, rollout: Rollout, what: str, before: str, after: str) -> None:
        if before == after:
            return
        pool, status = rollout.metadata.name, rollout.status
        change = RolloutEvent(
            pool=pool,
            target=status.target,
            before=before,
            after=after,
            because=what,
            failed=status.counts.failed,
            done=status.counts.done,
            total=status.counts.total,
        )
        message = f"{pool}: somebody set its {what} to {after or 'nothing'}"
        once = f"{what}/{rollout.metadata.uid}/{rollout.metadata.generation}"
        self._telling.publish(change, id=once, message=message)

    def _tell_of(
        self, name: str, body: Waits | Stepped | EditEvent | EvictionEvent, message: str, *, id: str
    ) -> None:
        self._telling.publish(
            body, id=id, message=message, node=name, node_uid=self._uids.get(name, "")
        )

    def _remember(self, name: str, what: str) -> None:
        told = self.history.setdefault(name, [])
        told.append(what)
        del told[:-HISTORY_LENGTH]

    def _next(self, what: str) -> str:
        """Not by the epoch: until one is written, leaders after one another have the same."""
        self._count += 1
        return f"{what}/{self._term}/{self._count}"


def _pool(node: NodeView) -> str:
    record = node.record
    return record.pool if isinstance(record, NodeRecord) and record.pool else node.pool


def _phase(change: RolloutEvent) -> str:
    """What it means for the nodes."""
    if not change.target:
        return "nothing is wanted of its nodes"
    words = {
        RolloutPhase.PROVING: "is to be proven on a few nodes before the others may start",
        RolloutPhase.PROVEN: "is proven: the others may start as the budget allows",
        RolloutPhase.COMPLETE: f"is on {change.done} of {change.total} nodes: complete",
        RolloutPhase.HALTED: f"is halted ({change.because}): nobody starts on it before a release",
    }
    return f"{change.target} {words.get(RolloutPhase(change.after), change.after)}"


def _accepted(rollout: Rollout) -> str:
    """What a person releases, in words; empty: nothing."""
    release = rollout.spec.release
    return "" if release is None else f"{release.failures} failures of {release.target}"


def _about(name: str, uid: str) -> InvolvedObject:
    return InvolvedObject(kind="Node", name=name, uid=uid)
