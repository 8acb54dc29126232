"""What we write on a Node: its keys, the states of an upgrade, the lease and the record.

They change together with the cordon, in one apply (docs/states.md). Keys under nvidia.com are those
that operators of the NVIDIA GPU Operator already select by.
"""

from enum import StrEnum

from libs.contracts.message import Message, OpenEnum
from libs.contracts.reports import Evidence

MANAGER = "sluice-scheduler"
"""The field manager of every write of the scheduler to a Node."""

STATE_LABEL = "nvidia.com/gpu-driver-upgrade-state"
SKIP_LABEL = "nvidia.com/gpu-driver-upgrade.skip"
DRAIN_SKIP_LABEL = "nvidia.com/gpu-driver-upgrade-drain.skip"
DRIVER_LABEL = "sluice.dev/driver"
KEEP_CORDONED_LABEL = "sluice.dev/keep-cordoned"
LEASE_ANNOTATION = "sluice.dev/lease"
RECORD_ANNOTATION = "sluice.dev/upgrade"
REQUEST_ANNOTATION = "sluice.dev/request"
REQUESTED_ANNOTATION = "nvidia.com/gpu-driver-upgrade-requested"
SAFE_LOAD_ANNOTATION = "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load"
INITIALLY_CORDONED_ANNOTATION = "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable"


class UpgradeState(StrEnum):
    """The public label's values. An unknown one was written by somebody else, and is text."""

    UNKNOWN = ""
    UPGRADE_REQUIRED = "upgrade-required"
    CORDON_REQUIRED = "cordon-required"
    WAIT_FOR_JOBS_REQUIRED = "wait-for-jobs-required"
    POD_DELETION_REQUIRED = "pod-deletion-required"
    DRAIN_REQUIRED = "drain-required"
    NODE_MAINTENANCE_REQUIRED = "node-maintenance-required"
    POST_MAINTENANCE_REQUIRED = "post-maintenance-required"
    POD_RESTART_REQUIRED = "pod-restart-required"
    VALIDATION_REQUIRED = "validation-required"
    UNCORDON_REQUIRED = "uncordon-required"
    UPGRADE_DONE = "upgrade-done"
    UPGRADE_FAILED = "upgrade-failed"


class LeaseOwner(OpenEnum):
    """Who may change a node while it is leased."""

    UPGRADE = "upgrade"
    REPAIR = "repair"
    MIG = "mig"
    HUMAN = "human"


class NodeLease(Message, frozen=True, kw_only=True):
    """One owner of a node. It is ended by its owner or by a person, never by a clock."""

    node_uid: str
    owner: LeaseOwner
    token: int
    since: float


class Operation(OpenEnum):
    """What is done to a node: each has its own path through the states."""

    UPGRADE = "upgrade"
    RESTART = "restart"
    SAME_LABEL = "same-label"
    BRING_UP = "bring-up"
    TAKE_OVER = "take-over"
    INSTALL = "install"
    VALIDATE = "validate"
    REMOVE = "remove"


class NodeRequest(OpenEnum):
    """What a person asks for once, by annotation."""

    ADOPT = "adopt"
    FORGET = "forget"
    WITHOUT_PREFLIGHT = "without-preflight"


class NodeRecord(Message, frozen=True, kw_only=True):
    """Where a node stands. Everything that a crash would forget is here."""

    node_uid: str
    epoch: int
    token: int
    pool: str = ""
    operation: Operation | None = None
    target: str = ""
    label: str = ""
    """The driver label that the operation leads to."""
    label_before: str = ""
    state: str = ""
    since: float = 0.0
    """When it came into this state."""
    boot_id: str = ""
    """The boot in which it came into this state."""
    started: bool = False
    """Whether the first irreversible step was taken: the driver label moved."""
    old_pod_uid: str = ""
    attempt: int = 0
    cause: str = ""
    """Why the last attempt failed, or why this one was begun."""
    outside: bool = False
    """What becomes of it counts for and against no target: it had failed on an earlier one, or is
    merely validated again."""
    unproven: bool = False
    """It failed since it was last validated: it is not given back before it is validated anew."""
    asked: bool = False
    """A person asked for this attempt: it is made although nothing is wrong with the evidence."""
    cordon_adopted: bool = False
    """The cordon was set by the upgrade that was taken over, not by a person: it ends with ours."""
    deadline: float | None = None
    """When the state ends by itself, in unix seconds; None: never."""
    deadline_renewed: bool = False
    """A reboot starts a state's deadline anew, once."""
    paused: bool = False
    """Discovery pauses what is not ours while this holds."""
    frozen_seconds: float = 0.0
    back_off_until: float = 0.0
    back_off_seconds: float = 0.0
    edits: int = 0
    """How often somebody else's edit was taken back in this attempt."""
    revalidated: str = ""
    """The driver instance for which a failed node was validated again."""
    restarts: tuple[float, ...] = ()
    """When the driver of a done node restarted, within the last hour."""
    evidence: Evidence | None = None
    seen: dict[str, str] = {}
    """The revision of each source on which the last lowering write was decided."""
