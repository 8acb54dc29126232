"""What happened, for people, audits and replay. Nothing is ever decided from it."""

import msgspec

from libs.contracts.message import Bodies, Data, Message, OpenEnum, raw
from libs.contracts.waits import WaitCode


class EventKind(OpenEnum):
    """The kinds of event, by who writes them."""

    # scheduler
    STEP = "step"
    WAIT = "wait"
    GRANT = "grant"
    ROLLOUT = "rollout"
    EVICTION = "eviction"
    EDIT = "edit"
    LEADER = "leader"
    # components, and the cluster roles that watch them
    COMMAND = "command"
    FACTS = "facts"
    HEALTH = "health"
    OPERAND = "operand"
    EVIDENCE = "evidence"


class StepEvent(Data, frozen=True, kw_only=True):
    """A node went from one state to the next."""

    pool: str
    token: int
    before: str
    after: str
    target: str = ""
    cause: str = ""
    revision: str = ""
    """The Node's resourceVersion after the write."""


class WaitEvent(Data, frozen=True, kw_only=True):
    """The reason for which a node waits is another one now. An empty code: it waits no more."""

    pool: str
    code: WaitCode | None = None
    detail: str = ""
    since: float = 0.0
    until: float | None = None
    who: str = ""


class GrantEvent(Data, frozen=True, kw_only=True):
    """Starts were granted: these nodes, on this target, within this budget."""

    pool: str
    target: str
    epoch: int
    nodes: tuple[str, ...]
    limit: int = 0
    unavailable: int = 0


class RolloutEvent(Data, frozen=True, kw_only=True):
    """A rollout changed its phase, or somebody its brake or its release."""

    pool: str
    target: str
    before: str
    after: str
    because: str = ""
    """Why its phase is another; or what it is that somebody set: `brake`, `release`."""
    failed: int = 0
    done: int = 0
    total: int = 0


class EvictionEvent(Data, frozen=True, kw_only=True):
    """A pod was asked to leave, and what was answered."""

    namespace: str
    pod: str
    pod_uid: str
    answer: str
    detail: str = ""


class EditEvent(Data, frozen=True, kw_only=True):
    """Somebody else edited what is ours, and what was done about it."""

    field: str
    manager: str
    before: str = ""
    after: str = ""
    done: str = ""


class LeaderEvent(Data, frozen=True, kw_only=True):
    """A new leader began."""

    holder: str
    epoch: int


class CommandEvent(Data, frozen=True, kw_only=True):
    """A command was begun, ended or refused on the node."""

    epoch: int
    token: int
    op: int
    command: str
    phase: str
    outcome: str = ""
    code: str = ""


class FactsEvent(Data, frozen=True, kw_only=True):
    """A node is not what it was: which facts changed."""

    changed: tuple[str, ...]


class HealthEvent(Data, frozen=True, kw_only=True):
    """A health rule fired or cleared."""

    rule: str
    gpu: str = ""
    firing: bool = True
    value: str = ""


class OperandEvent(Data, frozen=True, kw_only=True):
    """An operand was applied, orphaned or collected."""

    kind: str
    name: str
    action: str
    pool: str = ""


class EvidenceEvent(Data, frozen=True, kw_only=True):
    """A validation ended."""

    token: int
    op: int
    label: str
    passed: bool
    failed_step: str = ""


EventBody = (
    StepEvent
    | WaitEvent
    | GrantEvent
    | RolloutEvent
    | EvictionEvent
    | EditEvent
    | LeaderEvent
    | CommandEvent
    | FactsEvent
    | HealthEvent
    | OperandEvent
    | EvidenceEvent
)

EVENTS: Bodies[EventKind, EventBody] = Bodies(
    "event",
    {
        EventKind.STEP: StepEvent,
        EventKind.WAIT: WaitEvent,
        EventKind.GRANT: GrantEvent,
        EventKind.ROLLOUT: RolloutEvent,
        EventKind.EVICTION: EvictionEvent,
        EventKind.EDIT: EditEvent,
        EventKind.LEADER: LeaderEvent,
        EventKind.COMMAND: CommandEvent,
        EventKind.FACTS: FactsEvent,
        EventKind.HEALTH: HealthEvent,
        EventKind.OPERAND: OperandEvent,
        EventKind.EVIDENCE: EvidenceEvent,
    },
)


class Event(Message, frozen=True, kw_only=True):
    """The envelope of every event."""

    id: str
    """The same event sent twice has the same id."""
    at: float
    writer: str
    node: str = ""
    node_uid: str = ""
    kind: EventKind
    message: str
    """One sentence for a person."""
    body: msgspec.Raw

    @classmethod
    def of(
        cls,
        body: EventBody,
        *,
        id: str,
        at: float,
        writer: str,
        message: str,
        node: str = "",
        node_uid: str = "",
    ) -> "Event":
        """An event with this body; its kind follows from the body."""
        return cls(
            id=id,
            at=at,
            writer=writer,
            node=node,
            node_uid=node_uid,
            kind=EVENTS.kind_of(body),
            message=message,
            body=raw(body),
        )

    def open(self) -> EventBody:
        """The typed body, or `Unreadable`."""
        return EVENTS.open(self.kind, self.body)
