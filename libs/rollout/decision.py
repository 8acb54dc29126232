"""Decisions as data: actions with their guards, and a reason for each node that waits."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from libs.contracts.commands import Command, PreflightCheck
from libs.contracts.node import NodeLease, NodeRecord, Operation
from libs.contracts.queries import WaitReason
from libs.contracts.rollout import Brake, RolloutStatus

Wait = WaitReason
"""Why a node is not where its policy wants it, and what can end that: as answers tell it."""


class NodeTaint(msgspec.Struct, frozen=True, kw_only=True):
    """A taint of a Node."""

    key: str
    effect: str
    value: str = ""
    time_added: str = ""


class NodeApplyConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """All that we apply to a Node. A field that is left out is given up."""

    state: str = ""
    driver_label: str = ""
    lease: NodeLease | None = None
    record: NodeRecord | None = None
    unschedulable: bool | None = None
    """True: our cordon. False: written outright, where another manager would keep the cordon. None:
    not applied."""
    initially_cordoned: bool = False
    mig_state: str = ""
    taints: tuple[NodeTaint, ...] | None = None
    """The whole list, also of others' taints: the API server has one owner of it. None: not
    applied."""
    cleared: tuple[str, ...] = ()
    """Keys of labels and annotations set by others that we must remove: forced to be empty."""


class WriteNode(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One server-side apply, guarded by uid and revision."""

    uid: str
    revision: str
    applied: NodeApplyConfiguration
    lowers_capacity: bool = False
    """The write may make an available node unavailable."""


class WriteSlot(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Write this command into the slot of a component."""

    component: str
    command: Command


class AskPreflight(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask the driver agent whether this driver could be brought up."""

    boot_id: str
    check: PreflightCheck
    awaits_pods: bool = False
    """The pods of the node have to be listed first: the check says which of them leave."""
    keeps_findings: bool = False
    """The findings of the last check hold until this one is answered."""


class PodRef(msgspec.Struct, frozen=True, kw_only=True):
    """A pod identified by uid, so that a later pod of the same name is not meant."""

    namespace: str
    name: str
    uid: str


class EvictPods(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Evict these pods: a job that runs until they are gone or it is cancelled."""

    pods: tuple[PodRef, ...]
    by_force: bool = False
    """Delete instead of evict: the strategy has ForceDelete, and the limit has passed."""


class DeleteDriverPod(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Delete a driver pod, so that its DaemonSet creates it again."""

    pod: PodRef


class NoticeKind(StrEnum):
    """Kinds of events beside state changes."""

    EDIT = "edit"
    """A field of ours was edited."""
    REQUEST = "request"
    """A request was carried out."""
    CORDON = "cordon"
    """Our cordon was removed, and is restored."""


class Notice(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An event for people, emitted once, after the write before it succeeded."""

    kind: NoticeKind
    field: str
    manager: str = ""
    before: str = ""
    after: str = ""
    message: str


Action = WriteNode | WriteSlot | AskPreflight | EvictPods | DeleteDriverPod | Notice


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about a node now, and what it waits for beside that.

    Each action runs after the previous one succeeded. A failure ends the step; the node is then
    decided again.
    """

    actions: tuple[Action, ...]
    because: str
    """One sentence for a person."""
    wait: Wait | None = None
    wake_at: float | None = None
    probes: tuple[str, ...] = ()
    """Sources that must prove that they are current before the node can go on."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node that could start now, as far as the node alone is concerned."""

    operation: Operation
    target: str
    label: str
    """Empty: the driver is removed."""
    outside: bool = False
    """The node failed on an earlier target, or is only validated again: outside the counts of
    bounded harm and of `maxParallelUpgrades`."""
    by_hand: bool = False
    """It starts although `autoUpgrade` is off (`starts_by_hand`)."""
    check: PreflightCheck | None = None
    """The preflight check that the node needs; None: none, or a person waived it."""
    image: str = ""
    """The driver's image, which has to be on the node before the start; empty: none has to."""


NodeOutcome = Step | Wait | Candidate | None
"""None: the node is where its policy wants it."""


class WriteRollout(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Write the Rollout of a pool by compare-and-set; without a uid it is created."""

    pool: str
    uid: str = ""
    revision: str = ""
    status: RolloutStatus
    brake: Brake | None = None
    """Set on a Rollout that is rebuilt after it was lost: the only field of `spec` that we write.
    """
    has_finalizer: bool = True
    """Our finalizer should be on the object."""
    granted: tuple[str, ...] = ()
    """Names of nodes that this write grants a start."""
    has_known_end: bool = True
    """Whether each wait in flight ends by itself, so that the pace tells when the rollout ends."""
    because: str = ""


class BudgetUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The budget of a pool and what uses it."""

    limit: int
    base: int
    unavailable: Mapping[str, str]
    """By node name: why the node counts as unavailable."""
    parallel: int
    """How many of `maxParallelUpgrades` are used."""
    parallel_limit: int | None
    """None: limited by `maxUnavailable` only."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """All that follows for the fleet at one moment."""

    steps: Mapping[str, Step] = {}
    """By node name."""
    waits: Mapping[str, Wait] = {}
    """By node name: every node that is not where its policy wants it and has no step."""
    rollouts: tuple[WriteRollout, ...] = ()
    cancelled: tuple[str, ...] = ()
    """Nodes with evictions that are no longer wanted."""
    probes: tuple[str, ...] = ()
    """Sources that must prove that they are current before a node can start or go on."""
    budgets: Mapping[str, BudgetUsage] = {}
    wake_at: float | None = None
    """When to decide again if nothing changes until then."""
    deposed: bool = False
    """A later leader has written into a Rollout: this one must do nothing."""
