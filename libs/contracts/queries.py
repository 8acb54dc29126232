"""Read-only questions to services: what `sluice status`, `why` and `plan` show."""

from enum import StrEnum

from libs.contracts.message import Data, Message, OpenEnum
from libs.contracts.rollout import Counts
from libs.contracts.waits import WaitCode


class QueryVerb(StrEnum):
    """What may be asked."""

    STATUS = "status"
    WHY = "why"
    PLAN = "plan"


class QueryErrorCode(OpenEnum):
    """Why there is no answer."""

    UNREADABLE = "unreadable"
    NOT_FOUND = "not-found"
    NOT_READY = "not-ready"
    INTERNAL = "internal"


class QueryError(Message, frozen=True, kw_only=True):
    """Instead of an answer: what was wrong, and what to do."""

    code: QueryErrorCode
    message: str


class StatusQuery(Message, frozen=True, kw_only=True):
    """How do the pools stand? An empty pool means all of them."""

    pool: str = ""


class PoolStatus(Data, frozen=True, kw_only=True):
    """One pool."""

    pool: str
    target: str = ""
    phase: str = ""
    because: str = ""
    brake: str = ""
    counts: Counts = Counts()
    waits: dict[str, int] = {}
    """How many nodes wait for what."""


class StatusAnswer(Message, frozen=True, kw_only=True):
    """The pools, and how fresh the answer is."""

    at: float
    leader: str = ""
    epoch: int = 0
    sources: dict[str, float] = {}
    """Seconds since each source last proved itself."""
    pools: tuple[PoolStatus, ...] = ()


class WhyQuery(Message, frozen=True, kw_only=True):
    """Why is this node not where its policy wants it?"""

    node: str


class WaitReason(Data, frozen=True, kw_only=True):
    """A reason, since when, until when or for ever, and who can end it."""

    code: WaitCode
    detail: str
    since: float
    until: float | None = None
    who: str = ""


class WhyAnswer(Message, frozen=True, kw_only=True):
    """What is known of a node's upgrade."""

    node: str
    node_uid: str = ""
    pool: str = ""
    state: str = ""
    target: str = ""
    in_place: bool = False
    """It is where its policy wants it; then there is no wait."""
    wait: WaitReason | None = None
    history: tuple[str, ...] = ()


class PlanQuery(Message, frozen=True, kw_only=True):
    """What would happen? With nothing given: to what is wanted now."""

    pool: str
    driver_version: str = ""
    max_unavailable: str = ""
    max_parallel: int | None = None
    finish_by: float | None = None
    seed: int = 0


class PlannedNode(Data, frozen=True, kw_only=True):
    """One node's place in a plan. Times are seconds from now; None is unknown."""

    node: str
    start_p50: float | None = None
    start_p95: float | None = None
    end_p50: float | None = None
    end_p95: float | None = None
    evicted: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()
    wait: WaitReason | None = None


class PlanAnswer(Message, frozen=True, kw_only=True):
    """A forecast."""

    pool: str
    target: str
    nodes: tuple[PlannedNode, ...] = ()
    makespan_p50: float | None = None
    makespan_p95: float | None = None
    gpu_hours_lost: float = 0.0
    largest_loss: int = 0
    largest_loss_at: float = 0.0
    needed_max_unavailable: int | None = None
    remarks: tuple[str, ...] = ()


QUERIES: dict[QueryVerb, tuple[type[Message], type[Message]]] = {
    QueryVerb.STATUS: (StatusQuery, StatusAnswer),
    QueryVerb.WHY: (WhyQuery, WhyAnswer),
    QueryVerb.PLAN: (PlanQuery, PlanAnswer),
}
"""Each question and its answer."""
