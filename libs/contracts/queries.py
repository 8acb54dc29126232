"""Read-only questions to services: what `sluice status`, `why`, `plan` and `audit` show."""

from enum import StrEnum

from libs.contracts.diagnoses import Diagnosis
from libs.contracts.journal import Entry
from libs.contracts.message import Data, Message, OpenEnum
from libs.contracts.numbers import Count, Epoch, Integer
from libs.contracts.rollout import Counts
from libs.contracts.waits import WaitCode


class QueryVerb(StrEnum):
    """The kinds of query."""

    STATUS = "status"
    WHY = "why"
    PLAN = "plan"
    JOURNAL = "journal"


class QueryErrorCode(OpenEnum):
    """Why a query failed."""

    UNREADABLE = "unreadable"
    NOT_FOUND = "not-found"
    NOT_READY = "not-ready"
    INTERNAL = "internal"


class QueryError(Message, frozen=True, kw_only=True):
    """The reply to a query that failed: the problem and the remedy."""

    code: QueryErrorCode
    message: str


class StatusQuery(Message, frozen=True, kw_only=True):
    """Asks for the status of a pool; an empty name means all pools."""

    pool: str = ""


class HeldNode(Data, frozen=True, kw_only=True):
    """A node whose lease a person has, or waits for while an operation has it."""

    node: str
    who: str = ""
    since: float = 0.0
    reason: str = ""
    waits: bool = False


class NodeWait(Data, frozen=True, kw_only=True):
    """What a node waits for, and the details, of which a row has room for the beginning."""

    node: str
    code: WaitCode
    detail: str = ""


class PoolStatus(Data, frozen=True, kw_only=True):
    """The status of one pool."""

    pool: str
    target: str = ""
    phase: str = ""
    because: str = ""
    brake: str = ""
    counts: Counts = Counts()
    waits: dict[str, Count] = {}
    """The number of nodes by what they wait for, in flight or not; without skipped ones, which
    `counts` has."""
    without_gpus: Count = 0
    """The number of nodes that have a driver, and a GPU that no container can have:
    `WhyAnswer.no_gpus` says why."""
    budget: str = ""
    """The limit that keeps most nodes from starting, and the nodes that use it up."""
    held: tuple[HeldNode, ...] = ()
    """Nodes that people have, or wait for; the first 100 by name."""
    node_waits: tuple[NodeWait, ...] = ()
    """What nodes wait for: 100 of them, those that failed or are in flight first, then by name."""


class StatusAnswer(Message, frozen=True, kw_only=True):
    """The pools, and the freshness of the answer."""

    at: float
    leader: str = ""
    epoch: Epoch = 0
    sources: dict[str, float] = {}
    """Seconds since each source was last known to be up to date."""
    pools: tuple[PoolStatus, ...] = ()


class WhyQuery(Message, frozen=True, kw_only=True):
    """Asks why a node is not in its wanted state."""

    node: str


class WaitReason(Data, frozen=True, kw_only=True, gc=False):
    """Why a node waits, since and until when (None: no limit), and who can end the wait."""

    code: WaitCode
    detail: str
    since: float
    until: float | None = None
    who: str = ""


class WhyAnswer(Message, frozen=True, kw_only=True):
    """The state of a node's upgrade."""

    node: str
    node_uid: str = ""
    pool: str = ""
    state: str = ""
    target: str = ""
    in_place: bool = False
    """Whether the node is in its wanted state; then there is no wait."""
    wait: WaitReason | None = None
    history: tuple[str, ...] = ()
    history_at: tuple[float, ...] = ()
    """When each of `history` happened, in Unix seconds."""
    no_gpus: str = ""
    """Why containers can have none of the node's GPUs or not all, as its driver agent says."""
    container_runtime: str = ""
    """Why its container runtime is not configured as wanted, as its driver agent says."""
    next_kernel: str = ""
    """Why the node may have no driver after its next boot."""
    diagnoses: tuple[Diagnosis, ...] = ()
    """What is wrong with the node, where it has a name, and notes."""
    clocks: str = ""
    """Whose clock is wrong: that of the leader's machine or of the node's; empty: neither."""


class PlanQuery(Message, frozen=True, kw_only=True):
    """Asks for a forecast of a pool's rollout; without fields, of the current policy."""

    pool: str
    driver_version: str = ""
    max_unavailable: str = ""
    max_parallel: Count | None = None
    finish_by: float | None = None
    seed: Integer = 0
    driver: str = ""
    """A driver with other settings than the policy's, as JSON of a `WantedDriver`; empty: none.
    `driver_version` overrides its version."""


class PlanLimits(Data, frozen=True, kw_only=True):
    """How many nodes of a pool may be unavailable, and upgraded, at once."""

    max_unavailable: str
    max_parallel: Count = 0
    """0: no limit."""


class PlanStopKind(OpenEnum):
    """The kinds of stops. A plan goes on as if each had ended, except a deleted policy."""

    POLICY_DELETED = "policy-deleted"
    HALTED = "halted"
    PAUSED = "paused"
    FROZEN = "frozen"
    AUTO_UPGRADE_OFF = "auto-upgrade-off"


class PlanStop(Data, frozen=True, kw_only=True):
    """What keeps the nodes of a pool from starting when a plan is made."""

    kind: PlanStopKind
    because: str = ""
    """Who or what stopped it, and why, as far as known."""
    failures: Count = 0
    """How many failures a release of the halted driver has to accept."""


class CapacityPoint(Data, frozen=True, kw_only=True):
    """How many nodes of a pool are unavailable from a time on, with how many GPUs."""

    at: float
    """Seconds from now."""
    nodes: Count
    gpus: Count


class PlannedNode(Data, frozen=True, kw_only=True):
    """The forecast for one node. Times are seconds from now; None means unknown."""

    node: str
    start_p50: float | None = None
    start_p95: float | None = None
    end_p50: float | None = None
    end_p95: float | None = None
    evicted: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()
    wait: WaitReason | None = None
    without_place: tuple[str, ...] = ()
    """Evicted pods that would fit on no other node now, each with the reason."""
    gpus: Count | None = None
    """How many GPUs it takes away: 0 where something else has already; None: not known."""
    run_start: float | None = None
    """In the simulated run that `PlanAnswer.capacity` is of; None: not in it, or not told."""
    run_end: float | None = None


class PlanAnswer(Message, frozen=True, kw_only=True):
    """The forecast of a pool's rollout."""

    pool: str
    target: str
    nodes: tuple[PlannedNode, ...] = ()
    makespan_p50: float | None = None
    makespan_p95: float | None = None
    gpu_hours_lost: float = 0.0
    drained_seconds: float | None = None
    """For which a node is out of service, in the median; None: unknown."""
    pulling_seconds: float | None = None
    """Of those, in the median: while the driver's image is pulled."""
    largest_loss: Count = 0
    largest_loss_at: float = 0.0
    pool_nodes: Count = 0
    pool_gpus: Count = 0
    """All of the pool, with those that need no upgrade; 0: the GPUs of some node are not known."""
    capacity: tuple[CapacityPoint, ...] = ()
    """The unavailable nodes over time, in a simulated run of median duration."""
    needed_max_unavailable: Count | None = None
    measured_nodes: Count = 0
    """Nodes of the pool whose last upgrade, or before it the bring-up, was measured: durations are
    predicted from them."""
    remarks: tuple[str, ...] = ()
    upgraded: Count | None = None
    """Of the nodes, how many are probably upgraded in the end; None: not told."""
    failing: Count = 0
    """How many probably fail."""
    stops: tuple[PlanStop, ...] = ()
    """What has to end before the rollout goes on; all times count from that moment."""
    limits: PlanLimits | None = None
    """Those of the plan; None: not told."""
    policy_limits: PlanLimits | None = None
    """Those of the policy when the plan was made."""
    down: CapacityPoint | None = None
    """What is unavailable when the plan is made; None: nothing is, or it is not told."""
    held: tuple[str, ...] = ()
    """Of the remarks, those about nodes that jobs or disruption budgets hold up."""


class JournalQuery(Message, frozen=True, kw_only=True):
    """Asks for the journals of a node's agents, a page of each at a time."""

    node: str
    after: dict[str, Count] = {}
    """By component, how many entries precede the page; empty: the first page of each."""


class JournalPart(Data, frozen=True, kw_only=True):
    """A page of the journal of one component (`JournalPage`)."""

    component: str
    entries: tuple[Entry, ...] = ()
    next: Count | None = None
    complete_since: float | None = None
    problem: str = ""
    """Why there are no entries."""


class JournalAnswer(Message, frozen=True, kw_only=True):
    """A page of the journal of each agent of a node that is known, or was asked for."""

    node: str
    node_uid: str = ""
    parts: tuple[JournalPart, ...] = ()


QUERIES: dict[QueryVerb, tuple[type[Message], type[Message]]] = {
    QueryVerb.STATUS: (StatusQuery, StatusAnswer),
    QueryVerb.WHY: (WhyQuery, WhyAnswer),
    QueryVerb.PLAN: (PlanQuery, PlanAnswer),
    QueryVerb.JOURNAL: (JournalQuery, JournalAnswer),
}
"""Query and answer types by verb."""
