"""What the verbs answer, as data for programs and views. Times are Unix seconds. Pure."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from libs.contracts.node import WaitCode
from libs.contracts.queries import (
    HeldNode,
    NodeWait,
    PlanAnswer,
    PoolStatus,
    StatusAnswer,
    WhyAnswer,
)
from libs.contracts.rollout import Brake, RolloutSpec, RolloutStatus
from libs.ctl.brakes import ending_of_halt
from libs.ctl.node_rows import DriverState, NodeRow, without_logs_command
from libs.ctl.text import name_versions, natural_order, version_name
from libs.kube import views
from libs.kube.authors import Author, brake_author

if TYPE_CHECKING:
    from libs.contracts.events import Event


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where figures come from, and how old they are."""

    name: str
    gives: str
    age: float | None = None
    """Seconds; None: not asked or not answered."""
    problem: str = ""
    remedy: str = ""
    """What to do about the problem."""
    behind: dict[str, float] = {}
    """Seconds since each of the source's own sources was up to date."""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool and its rollout."""

    name: str
    version: str
    target: str
    phase: str
    because: str
    brake: str
    brake_set: Author | None = None
    """None: there is no brake, or Kubernetes was not asked or does not record it."""
    halt_ended_by: str = ""
    """The command that ends its halt; empty: it is not halted, or Kubernetes was not asked."""
    counts: dict[str, int]
    """The pool's nodes by what they do; `limit` may be unavailable."""
    waits: dict[str, int] | None = None
    """Waiting nodes by wait code; None: the scheduler did not answer."""
    budget: str = ""
    """The limit that keeps nodes from starting, and the nodes that use it up, as the scheduler
    says."""
    without_gpus: int = 0
    """The number of nodes with a driver and a GPU that no container can have, as the scheduler
    says."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    pools: tuple[Pool, ...]
    nodes: tuple[NodeRow, ...]
    """Of all pools, the nodes that are not done, are cordoned, or are not divided as
    asked; of one pool, all its nodes."""
    sources: tuple[Source, ...]
    held: tuple[HeldNode, ...] = ()
    """Nodes that people have; without the scheduler, of the nodes above only."""
    exit_code: int = 0
    """What it means that Kubernetes gave only a part, or nothing; 0: it gave all."""


class NodeFact(msgspec.Struct, frozen=True, kw_only=True):
    """A condition or an Event of a node."""

    name: str
    text: str
    at: str = ""
    is_over: bool = False
    """It tells of a wait that the node has no more."""


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One node: what Kubernetes shows, and what the scheduler says."""

    node: NodeRow
    ready: bool | None
    cordoned: bool
    cordon_set: Author | None = None
    """None: it is not cordoned, or nothing records by whom."""
    skip_set: Author | None = None
    """The same of its skip label."""
    labels: dict[str, str]
    conditions: tuple[NodeFact, ...]
    events: tuple[NodeFact, ...]
    why: WhyAnswer | None
    unmanaged: str = ""
    """Why the scheduler does nothing on the node; empty: it does, or did not say."""
    ended_by: str = ""
    """The command by which an administrator ends the wait; empty: none does."""
    sources: tuple[Source, ...]


class PlannedFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan takes from a file that is not applied yet, and what not."""

    file: str
    policy: str
    version: str
    """As the limits below: of the file, unless an option overrides it."""
    max_unavailable: str
    max_parallel: int
    changes_nothing: bool
    """Whether the policy is in the cluster as the file has it."""
    nodes: tuple[str, ...]
    """The nodes that the policy selects."""
    joining: tuple[str, ...] = ()
    """Of these, nodes that are not in the pool yet, and so not in the plan."""
    leaving: tuple[str, ...] = ()
    """Nodes of the pool, and of the plan, that the policy does not select any more."""
    driver_changes: tuple[str, ...] = ()
    """Fields of its driver that change: nodes are upgraded for them."""
    not_planned: tuple[str, ...] = ()
    """What else of the policy changes."""
    left_out: tuple[str, ...] = ()
    """Other objects in the file."""


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """A forecast, with the version that its target stands for."""

    version: str
    plan: PlanAnswer
    at: float | None = None
    """When it was asked for, from which its times count, in Unix seconds; None: not known."""
    limits_given: bool = False
    """Whether a limit was asked for, instead of the policy's."""
    finish_by: float | None = None
    file: PlannedFile | None = None
    with_policy_limits: PlanAnswer | None = None
    """The same with the policy's limits, where others were asked for."""


class PoolPlans(msgspec.Struct, frozen=True, kw_only=True):
    """The forecast of each pool, of several."""

    plans: tuple[PlanView, ...]


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as Kubernetes shows it."""

    node: str
    index: int
    product: str
    memory_mib: int
    health: str
    because: str
    remedy: str
    uuid: str
    driver: str
    driver_state: DriverState = DriverState.RUNS
    mig: str


class AuditedInvariant(msgspec.Struct, frozen=True, kw_only=True):
    """One promise, and whether it was kept."""

    name: str
    judged: bool
    """Whether some check of it had its sources."""
    violations: int
    first: tuple[str, ...] = ()
    """The first violations."""
    not_judged: str = ""
    """What was missing, for all of it or a part."""


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on each promise."""

    invariants: tuple[AuditedInvariant, ...]
    sources: tuple[Source, ...]
    since: float | None = None
    until: float | None = None
    """The time of the first and the last write that was judged."""
    unjudged_nodes: tuple[str, ...] = ()
    """Nodes on which no operation began within the log: what they were before is not known."""
    unread_journals: tuple[str, ...] = ()
    """Journals of agents that were not read, or are cut: node, component and reason."""


class EventLine(msgspec.Struct, frozen=True, kw_only=True):
    """An event for people."""

    at: float
    writer: str
    node: str
    kind: str
    message: str

    @classmethod
    def of(cls, event: "Event", versions: Mapping[str, str]) -> "EventLine":
        message = name_versions(event.message, versions)
        return cls(
            at=event.at,
            writer=event.writer,
            node=event.node,
            kind=event.kind.value,
            message=message,
        )


def pool_of(
    metadata: views.Metadata, spec: RolloutSpec, status: RolloutStatus, versions: Mapping[str, str]
) -> Pool:
    """Return a pool as its Rollout shows it."""
    return Pool(
        name=metadata.name,
        version=version_name(status.target, versions),
        target=status.target,
        phase=status.phase.value,
        because=name_versions(status.because, versions),
        brake=spec.brake.value,
        brake_set=brake_author(metadata) if spec.brake is not Brake.NONE else None,
        halt_ended_by=ending_of_halt(metadata.name, status),
        counts=msgspec.structs.asdict(status.counts),
    )


def pool_from_scheduler(status: PoolStatus) -> Pool:
    """Return a pool as the scheduler shows it, where Kubernetes does not answer."""
    return Pool(
        name=status.pool,
        version=version_name(status.target, {}),
        target=status.target,
        phase=status.phase,
        because=status.because,
        brake=status.brake or Brake.NONE.value,
        counts=msgspec.structs.asdict(status.counts),
        waits=dict(status.waits),
        budget=name_versions(status.budget, {}),
        without_gpus=status.without_gpus,
    )


def with_waits(
    pools: Iterable[Pool], answer: StatusAnswer | None, versions: Mapping[str, str]
) -> tuple[Pool, ...]:
    """Add what the scheduler says: waits, and pools that have no Rollout yet."""
    if answer is None:
        return tuple(pools)
    told = {each.pool: each for each in answer.pools}
    known = [
        msgspec.structs.replace(
            pool,
            waits=dict(told[pool.name].waits),
            because=pool.because or told[pool.name].because,
            budget=name_versions(told[pool.name].budget, versions),
            without_gpus=told[pool.name].without_gpus,
        )
        if pool.name in told
        else pool
        for pool in pools
    ]
    names = {pool.name for pool in known}
    return (*known, *(pool_from_scheduler(each) for each in answer.pools if each.pool not in names))


def with_reasons(
    rows: Iterable[NodeRow], answer: StatusAnswer | None, versions: Mapping[str, str]
) -> tuple[NodeRow, ...]:
    """Add what the scheduler says that nodes wait for.

    The budget is told once for all of a pool, with the nodes that use it up.
    """
    pools = () if answer is None else answer.pools
    reasons = {each.node: _reason(each, versions) for pool in pools for each in pool.node_waits}
    return tuple(
        msgspec.structs.replace(row, because=reasons[row.name]) if row.name in reasons else row
        for row in rows
    )


def _reason(wait: NodeWait, versions: Mapping[str, str]) -> str:
    detail = without_logs_command(name_versions(wait.detail, versions))
    if wait.code is WaitCode.BUDGET or not detail:
        return wait.code.value
    return detail if wait.code is WaitCode.FAILED else f"{wait.code.value}: {detail}"


def scheduler_source(answer: StatusAnswer, *, now: float) -> Source:
    """Return the scheduler as a source."""
    name = f"scheduler {answer.leader}" if answer.leader else "scheduler"
    return Source(
        name=name, gives="waits", age=max(0.0, now - answer.at), behind=dict(answer.sources)
    )


def held_nodes(
    rows: Iterable[NodeRow], answer: StatusAnswer | None, pool: str
) -> tuple[HeldNode, ...]:
    """Return the nodes that people have: of one pool, or of all."""
    told = answer.pools if answer is not None else ()
    found = {held.node: held for each in told if pool in ("", each.pool) for held in each.held}
    found |= {row.name: row.held for row in rows if row.held is not None}
    return tuple(found[name] for name in sorted(found, key=natural_order))
