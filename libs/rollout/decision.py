"""What was decided: actions with their guards, and a reason for each node that has to wait.

Data only. Whoever carries it out brings the ports; whoever decides is elsewhere.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from libs.contracts.commands import Command, PreflightCheck
from libs.contracts.node import NodeLease, NodeRecord, Operation
from libs.contracts.rollout import Brake, RolloutStatus
from libs.contracts.waits import WaitCode


class Wait(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why a node is not where its policy wants it, and who can change that."""

    code: WaitCode
    detail: str
    since: float
    until: float | None = None
    """None: for ever."""
    who: str = ""


# What is done about one node. Of a step's actions each is done after the one before it succeeded;
# what fails ends the step: the node is looked at again.


class NodeApplyConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """All that we apply to a Node. What is not here, we give up."""

    state: str = ""
    driver_label: str = ""
    lease: NodeLease | None = None
    record: NodeRecord | None = None
    unschedulable: bool | None = None
    """True: our cordon. False: written outright, where another manager would keep it. None: not
    ours to say."""
    initially_cordoned: bool = False
    cleared: tuple[str, ...] = ()
    """Keys of labels and annotations that others set and we must remove: forced to be empty."""


class WriteNode(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One server-side apply, guarded by uid and revision."""

    uid: str
    revision: str
    applied: NodeApplyConfiguration
    lowers_capacity: bool = False
    """It may make an available node unavailable."""


class WriteSlot(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A component's slot is to hold this command."""

    component: str
    command: Command


class AskPreflight(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask the driver agent whether this driver could be brought up."""

    boot_id: str
    check: PreflightCheck


class PodRef(msgspec.Struct, frozen=True, kw_only=True):
    """This pod, and not one of the same name after it."""

    namespace: str
    name: str
    uid: str


class EvictPods(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """These pods are to leave: a job that goes on until they are gone or it is cancelled."""

    pods: tuple[PodRef, ...]
    by_force: bool = False
    """Deleted rather than evicted: the strategy says ForceDelete, and the limit has passed."""


class DeleteDriverPod(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Its DaemonSet makes it anew."""

    pod: PodRef


class NoticeKind(StrEnum):
    """What is worth an event of its own, beside a new state."""

    EDIT = "edit"
    """Somebody edited what is ours."""
    REQUEST = "request"
    """Somebody asked for something, and it was done."""
    CORDON = "cordon"
    """Somebody took our cordon away, and it was put back."""


class Notice(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Something to tell people, once, when the write before it was done."""

    kind: NoticeKind
    field: str
    manager: str = ""
    before: str = ""
    after: str = ""
    message: str


Action = WriteNode | WriteSlot | AskPreflight | EvictPods | DeleteDriverPod | Notice


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What is done about a node now, and what it waits for besides."""

    actions: tuple[Action, ...]
    because: str
    """One sentence for a person."""
    wait: Wait | None = None
    wake_at: float | None = None


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node that could start now, as far as it alone is concerned. The pool says whether."""

    operation: Operation
    target: str
    label: str
    """Empty: the driver is removed."""
    outside: bool = False
    """It failed on an earlier target, or is merely validated again: outside the counts of bounded
    harm and of `maxParallelUpgrades`."""
    check: PreflightCheck | None = None
    """The preflight it needs; None: it needs none, or a person waived it."""


NodeOutcome = Step | Wait | Candidate | None
"""Of one node. None: it is where its policy wants it."""


# What is done about a pool.


class WriteRollout(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The Rollout of a pool is to say this, by compare-and-set; without a uid it is made."""

    pool: str
    uid: str = ""
    revision: str = ""
    status: RolloutStatus
    brake: Brake | None = None
    """Of one that is made anew after it was lost: the one thing we ever write into `spec`."""
    has_finalizer: bool = True
    """Whether our finalizer is to be on it."""
    granted: tuple[str, ...] = ()
    """Names of nodes that it grants a start."""
    because: str = ""


class BudgetUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pool's budget is."""

    limit: int
    base: int
    unavailable: Mapping[str, str]
    """By name of the node: why it counts."""
    parallel: int
    """Of `maxParallelUpgrades`: how many are used."""
    parallel_limit: int | None
    """None: as many as `maxUnavailable` allows."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, at one moment."""

    steps: Mapping[str, Step] = {}
    """By name of the node."""
    waits: Mapping[str, Wait] = {}
    """By name, every node that is not where its policy wants it and about which nothing is done."""
    rollouts: tuple[WriteRollout, ...] = ()
    cancelled: tuple[str, ...] = ()
    """Nodes whose evictions are no longer wanted."""
    probes: tuple[str, ...] = ()
    """Sources that must prove themselves before anything can start."""
    budgets: Mapping[str, BudgetUsage] = {}
    """By pool."""
    wake_at: float | None = None
    """When to decide again if nothing changes until then."""
    deposed: bool = False
    """A later leader has written into a Rollout: nothing may be done by this one."""
