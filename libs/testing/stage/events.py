"""The events that the scheduler and the agents would publish about what happens on a stage."""

from libs.contracts.events import (
    CommandEvent,
    Event,
    EventBody,
    EvidenceEvent,
    StepEvent,
    WaitEvent,
)
from libs.contracts.identities import Writer
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.reports import Evidence
from libs.forecast.stage.objects import StageNode
from libs.rollout.decision import Step, Wait, WriteNode


class EventRecorder:
    """The events of all writers, with the ids that the services give them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._waits = 0

    def copy(self) -> "EventRecorder":
        copied = EventRecorder()
        copied.events, copied._waits = self.events.copy(), self._waits
        return copied

    def step(self, at: float, node: StageNode, before: str, write: WriteNode, step: Step) -> None:
        """Record a write of the scheduler that changed the state of a node."""
        record, state = write.applied.record, write.applied.state
        body = StepEvent(
            pool=record.pool if record is not None else node.view.pool,
            token=record.token if record is not None else 0,
            before=before,
            after=state,
            target=record.target if record is not None else "",
            cause=record.cause if record is not None else "",
            revision=node.view.revision,
        )
        event_id = f"step/{node.view.uid}/{node.view.revision}"
        self._record(at, body, event_id, step.because, node=(node.view.name, node.view.uid))

    def wait(self, at: float, node: StageNode, wait: Wait | None, leader: int) -> None:
        """Record another wait code, or the end of a wait."""
        body = WaitEvent(pool=node.view.pool)
        if wait is not None:
            body = WaitEvent(
                pool=node.view.pool, code=wait.code, detail=wait.detail, since=wait.since,
                until=wait.until, who=wait.who,
            )  # fmt: skip
        self._waits += 1
        message = wait.detail if wait is not None else "no longer waiting"
        event_id = f"wait/{leader}/{self._waits}"
        self._record(at, body, event_id, message, node=(node.view.name, node.view.uid))

    def entry(self, entry: Entry, evidence: Evidence | None) -> None:
        """Record a line of an agent's journal, and the evidence that it ends with."""
        if entry.phase is EntryPhase.STEP:
            return
        result, order = entry.result, entry.order
        body = CommandEvent(
            epoch=entry.epoch,
            token=entry.token,
            op=entry.op,
            command=entry.command,
            phase=entry.phase.value,
            outcome=result.outcome.value if result is not None else "",
            code=result.code if result is not None else "",
        )
        prefix = f"{entry.component}/{entry.node_uid}/{entry.boot_id}"
        node = entry.node, entry.node_uid
        event_id = f"{prefix}/command/{order}/{entry.phase}/{entry.time:.6f}"
        message = f"{entry.command} {order} {entry.phase}"
        self._record(entry.time, body, event_id, message, node=node, writer=entry.component)
        if evidence is not None and entry.phase is EntryPhase.FINISHED and evidence.order == order:
            proof = EvidenceEvent(
                token=entry.token, op=entry.op, label=evidence.label, passed=evidence.passed
            )
            event_id = f"{prefix}/evidence/{order}/{entry.time:.6f}"
            message = f"validation {order}"
            self._record(entry.time, proof, event_id, message, node=node, writer=entry.component)

    def _record(
        self,
        at: float,
        body: EventBody,
        event_id: str,
        message: str,
        *,
        node: tuple[str, str],
        writer: str = Writer.SCHEDULER.value,
    ) -> None:
        name, uid = node
        event = Event.of(
            body, id=event_id, at=at, writer=writer, message=message, node=name, node_uid=uid
        )
        self.events.append(event)
