"""What the verbs answer, as data for programs and views. Times are Unix seconds. Pure."""

import msgspec

from libs.contracts.queries import PlanAnswer, WhyAnswer
from libs.fleet.node import FleetNode
from libs.fleet.status import Source
from libs.kube.authors import Author


class NodeFact(msgspec.Struct, frozen=True, kw_only=True):
    """A condition or an Event of a node."""

    name: str
    text: str
    at: str = ""
    is_over: bool = False
    """It tells of a wait that the node has no more."""


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One node: what Kubernetes shows, and what the scheduler says."""

    node: FleetNode
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
