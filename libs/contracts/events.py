"""What happened, for people, audits and replay. Nothing is ever decided from it."""

import msgspec

from libs.contracts.message import Bodies, Data, Message, OpenWord, raw
from libs.contracts.waits import WaitCode


class EventKind(OpenWord):
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


class Step(Data, frozen=True, kw_only=True):
    """A node went from one state to the next."""

    pool: str
    token: int
    before: str
    after: str
    target: str = ""
    cause: str = ""
    revision: str = ""
    """The Node's resourceVersion after the write."""


class Wait(Data, frozen=True, kw_only=True):
    """The reason for which a node waits is another one now. An empty code: it waits no more."""

    pool: str
    code: WaitCode | None = None
    detail: str = ""
    since: float = 0.0
    until: float | None = None
    who: str = ""


class Grant(Data, frozen=True, kw_only=True):
    """Starts were granted: these nodes, on this target, within this budget."""

    pool: str
    target: str
    epoch: int
    nodes: tuple[str, ...]
    limit: int = 0
    unavailable: int = 0


class RolloutChange(Data, frozen=True, kw_only=True):
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


class Eviction(Data, frozen=True, kw_only=True):
    """A pod was asked to leave, and what was answered."""

    namespace: str
    pod: str
    pod_uid: str
    answer: str
    detail: str = ""


class Edit(Data, frozen=True, kw_only=True):
    """Somebody else edited what is ours, and what was done about it."""

    field: str
    manager: str
    before: str = ""
    after: str = ""
    done: str = ""


class Leader(Data, frozen=True, kw_only=True):
    """A new leader began."""

    holder: str
    epoch: int


class CommandTaken(Data, frozen=True, kw_only=True):
    """A command was begun, ended or refused on the node."""

    epoch: int
    token: int
    op: int
    command: str
    phase: str
    outcome: str = ""
    code: str = ""


class FactsChanged(Data, frozen=True, kw_only=True):
    """A node is not what it was: which facts changed."""

    changed: tuple[str, ...]


class Health(Data, frozen=True, kw_only=True):
    """A health rule fired or cleared."""

    rule: str
    gpu: str = ""
    firing: bool = True
    value: str = ""


class Operand(Data, frozen=True, kw_only=True):
    """An operand was applied, orphaned or collected."""

    kind: str
    name: str
    action: str
    pool: str = ""


class EvidenceFound(Data, frozen=True, kw_only=True):
    """A validation ended."""

    token: int
    op: int
    label: str
    passed: bool
    failed_step: str = ""


EventBody = (
    Step
    | Wait
    | Grant
    | RolloutChange
    | Eviction
    | Edit
    | Leader
    | CommandTaken
    | FactsChanged
    | Health
    | Operand
    | EvidenceFound
)

EVENTS: Bodies[EventKind, EventBody] = Bodies(
    "event",
    {
        EventKind.STEP: Step,
        EventKind.WAIT: Wait,
        EventKind.GRANT: Grant,
        EventKind.ROLLOUT: RolloutChange,
        EventKind.EVICTION: Eviction,
        EventKind.EDIT: Edit,
        EventKind.LEADER: Leader,
        EventKind.COMMAND: CommandTaken,
        EventKind.FACTS: FactsChanged,
        EventKind.HEALTH: Health,
        EventKind.OPERAND: Operand,
        EventKind.EVIDENCE: EvidenceFound,
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
