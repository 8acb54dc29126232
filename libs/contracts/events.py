"""Events for people, audits and replay. No decision depends on them."""

import msgspec

from libs.contracts.message import Bodies, Data, Message, OpenEnum, raw
from libs.contracts.numbers import Count, Epoch, Op, Token
from libs.contracts.queries import PlanLimits
from libs.contracts.waits import WaitCode


class EventKind(OpenEnum):
    """The kinds of event."""

    # written by the scheduler
    STEP = "step"
    WAIT = "wait"
    GRANT = "grant"
    ROLLOUT = "rollout"
    EVICTION = "eviction"
    EDIT = "edit"
    LEADER = "leader"
    PLAN = "plan"
    # written by components and cluster roles
    COMMAND = "command"
    FACTS = "facts"
    HEALTH = "health"
    OPERAND = "operand"
    EVIDENCE = "evidence"


NO_CHANGE = frozenset({EventKind.COMMAND, EventKind.FACTS, EventKind.PLAN})
"""Commands and facts of agents, which steps and waits cover, and plans that were asked for: views
leave them out.
"""


class StepEvent(Data, frozen=True, kw_only=True):
    """A node changed its upgrade state."""

    pool: str
    token: Token
    before: str
    after: str
    target: str = ""
    cause: str = ""
    revision: str = ""
    """The Node's resourceVersion after the write."""


NOT_WAITING = "no longer waiting"
"""The message of an event by which a wait ends."""
STILL_WAITING = "still waits: "
"""Begins the message of an event about a wait that has lasted, and whose begin was told."""


class WaitEvent(Data, frozen=True, kw_only=True):
    """The reason why a node waits changed. Without a code, the node no longer waits."""

    pool: str
    code: WaitCode | None = None
    detail: str = ""
    since: float = 0.0
    until: float | None = None
    who: str = ""
    told: dict[str, float] = {}
    """By code: when a Kubernetes Event last told of such a wait of the node, within the hour."""


class GrantEvent(Data, frozen=True, kw_only=True):
    """The upgrade of nodes to a target was granted within the budget."""

    pool: str
    target: str
    epoch: Epoch
    nodes: tuple[str, ...]
    limit: Count = 0
    unavailable: Count = 0


class RolloutEvent(Data, frozen=True, kw_only=True):
    """A rollout's phase changed, or a person changed its brake or release.

    A complete rollout whose nodes are only divided otherwise or validated again is told as complete
    all the while.
    """

    pool: str
    target: str
    before: str
    after: str
    because: str = ""
    """Why the phase changed, or the field that a person set: `brake` or `release`."""
    failed: Count = 0
    done: Count = 0
    total: Count = 0


class EvictionEvent(Data, frozen=True, kw_only=True):
    """A pod's eviction was requested, and the API server answered."""

    namespace: str
    pod: str
    pod_uid: str
    answer: str
    detail: str = ""


class EditEvent(Data, frozen=True, kw_only=True):
    """Another manager edited a field of Sluice or a cordon, and how Sluice reacted; or a person
    took, claimed or returned a node.
    """

    field: str
    manager: str
    before: str = ""
    after: str = ""
    done: str = ""


class PlannedTime(Data, frozen=True, kw_only=True):
    """When a node was expected to be upgraded, in seconds from the plan; None: not known."""

    node: str
    start: float
    end: float | None = None
    gpus: Count | None = None
    """How many GPUs that takes away: 0 where something else had already; None: not known."""


class PlanEvent(Data, frozen=True, kw_only=True):
    """The plan of a rollout was asked for; `sluice plan --compare` sets it beside what happened."""

    pool: str
    target: str
    plan: str
    """Names the plan: one with many nodes is several events."""
    nodes: tuple[PlannedTime, ...] = ()
    makespan_p50: float | None = None
    makespan_p95: float | None = None
    gpu_hours_lost: float | None = None
    """None: not told, as are the limits."""
    limits: PlanLimits | None = None
    """Those of the plan."""
    policy_limits: PlanLimits | None = None
    """Those of the policy when the plan was made."""


class LeaderEvent(Data, frozen=True, kw_only=True):
    """A new leader took over."""

    holder: str
    epoch: Epoch


class CommandEvent(Data, frozen=True, kw_only=True):
    """A command was started, finished or refused on the node."""

    epoch: Epoch
    token: Token
    op: Op
    command: str
    phase: str
    outcome: str = ""
    code: str = ""


class FactsEvent(Data, frozen=True, kw_only=True):
    """Facts of a node changed."""

    changed: tuple[str, ...]


class HealthEvent(Data, frozen=True, kw_only=True):
    """A health rule started or stopped firing."""

    rule: str
    gpu: str = ""
    firing: bool = True
    value: str = ""


def about_gpu(gpu: str, text: str) -> str:
    """Return the message of such an event."""
    return f"GPU {gpu}: {text}"


class OperandEvent(Data, frozen=True, kw_only=True):
    """An operand was applied, orphaned or deleted."""

    kind: str
    name: str
    action: str
    pool: str = ""


class EvidenceEvent(Data, frozen=True, kw_only=True):
    """A validation finished."""

    token: Token
    op: Op
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
    | PlanEvent
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
        EventKind.PLAN: PlanEvent,
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
    """Repeated deliveries of an event have the same id."""
    at: float
    writer: str
    node: str = ""
    node_uid: str = ""
    kind: EventKind
    message: str
    """One sentence for people."""
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
        """Return the typed body, or raise `MalformedMessage`."""
        return EVENTS.open(self.kind, self.body)
