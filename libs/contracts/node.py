"""Labels and annotations of Nodes: keys, upgrade states, lease and record.

They change together with the cordon, in one apply (docs/states.md). Keys under nvidia.com are those
of the NVIDIA GPU Operator, which existing tools select by.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache

from libs.contracts.gpus import GpuIdentity
from libs.contracts.message import MalformedMessage, Message, OpenEnum, decode
from libs.contracts.numbers import Count, Epoch, Token
from libs.contracts.reports import Evidence

MANAGER = "sluice-scheduler"
"""The field manager of the scheduler's writes to Nodes."""
COMMAND = "kubectl-sluice"
"""The field manager of people's writes by `sluice`. Those of our services begin with `sluice-`."""

STATE_LABEL = "nvidia.com/gpu-driver-upgrade-state"
SKIP_LABEL = "nvidia.com/gpu-driver-upgrade.skip"
DRAIN_SKIP_LABEL = "nvidia.com/gpu-driver-upgrade-drain.skip"
DRIVER_LABEL = "sluice.dev/driver"
KEEP_CORDONED_LABEL = "sluice.dev/keep-cordoned"
RESERVED_DOMAINS = ("kubernetes.io", "k8s.io", "nvidia.com", "sluice.dev")
"""Of keys of labels that no file on a machine decides on, with all domains below them. What else it
may name, the kubelet of its Node may write, too."""
LEASE_ANNOTATION = "sluice.dev/lease"
LEASE_CLAIM_ANNOTATION = "sluice.dev/lease-claim"
"""The lease of a person who waits for an operation to end; from then on it is the node's lease."""
RECORD_ANNOTATION = "sluice.dev/upgrade"
REQUEST_ANNOTATION = "sluice.dev/request"
REQUESTED_ANNOTATION = "nvidia.com/gpu-driver-upgrade-requested"
SAFE_LOAD_ANNOTATION = "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load"
VALIDATION_POD_ANNOTATION = "sluice.dev/validation-pod"
MIG_CONFIG_LABEL = "nvidia.com/mig.config"
PLUGIN_CONFIG_LABEL = "nvidia.com/device-plugin.config"
MIG_STATE_LABEL = "nvidia.com/mig.config.state"
INITIALLY_CORDONED_ANNOTATION = "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable"
READ_ANNOTATIONS = frozenset(
    {
        LEASE_ANNOTATION,
        LEASE_CLAIM_ANNOTATION,
        RECORD_ANNOTATION,
        REQUEST_ANNOTATION,
        REQUESTED_ANNOTATION,
        SAFE_LOAD_ANNOTATION,
        INITIALLY_CORDONED_ANNOTATION,
        VALIDATION_POD_ANNOTATION,
    }
)
"""Those that the scheduler keeps of a Node: it does not see a change of any other."""


class UpgradeState(StrEnum):
    """Values of the public upgrade label. Others are foreign edits and are kept as text."""

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


class MigState(StrEnum):
    """Values of the public label about the MIG configuration of a node."""

    PENDING = "pending"
    REBOOTING = "rebooting"
    SUCCESS = "success"
    FAILED = "failed"


class LeaseOwner(OpenEnum):
    """The owner of a node's lease, which alone may change the node."""

    UPGRADE = "upgrade"
    REPAIR = "repair"
    MIG = "mig"
    HUMAN = "human"


class NodeLease(Message, frozen=True, kw_only=True):
    """A node's lease. Its owner or a person ends it; it never expires."""

    node_uid: str
    owner: LeaseOwner
    token: Token
    """That of the operation; a person's lease begins none, and repeats the last."""
    since: float
    who: str = ""
    """The person, as the API server knows them; a claim of theirs, which the audit log proves."""
    reason: str = ""
    """Why the person took it."""


class Operation(OpenEnum):
    """The kind of operation on a node; each has its own path through the states."""

    UPGRADE = "upgrade"
    RESTART = "restart"
    SAME_LABEL = "same-label"
    BRING_UP = "bring-up"
    TAKE_OVER = "take-over"
    INSTALL = "install"
    VALIDATE = "validate"
    REMOVE = "remove"
    MIG = "mig"


class NodeRequest(OpenEnum):
    """A one-time request that a person makes by annotation."""

    ADOPT = "adopt"
    FORGET = "forget"
    WITHOUT_PREFLIGHT = "without-preflight"


REQUESTED_BY, ADOPTED, LABEL_EDITED_BY = "requested by ", "adopted ", "driver label edited by "
"""Begin the causes that say why an attempt was started."""
ITS_LOG, WHOLE_LOG = "its log", "all of it"
"""Precede the command for a log, at the end of how a container ended."""


@lru_cache(maxsize=4096)
def is_vendor_label(key: str) -> bool:
    """Return whether the key of a label has a domain, and none that is reserved."""
    domain, slash, _ = key.partition("/")
    return bool(slash) and not f".{domain}".endswith(tuple(f".{each}" for each in RESERVED_DOMAINS))


def user_of(program: str) -> str:
    """Return what is known of the user of a program, such as `somebody with kubectl`."""
    if not program:
        return "somebody"
    if program.startswith("sluice-"):
        return "Sluice"
    known = {COMMAND: "sluice"}
    name = known.get(program, "kubectl" if program.startswith("kubectl") else program)
    return f"somebody with {name}"


def without_details(cause: str) -> str:
    """Return a cause without what it has in brackets, which was told with the failure."""
    return cause.partition(" (")[0]


class NodeRecord(Message, frozen=True, kw_only=True):
    """The progress of a node. It holds everything that must survive a crash."""

    node_uid: str
    epoch: Epoch
    token: Token
    pool: str = ""
    operation: Operation | None = None
    target: str = ""
    label: str = ""
    """The driver label that the operation leads to."""
    label_before: str = ""
    state: str = ""
    since: float = 0.0
    """When the node entered this state."""
    boot_id: str = ""
    """The boot in which the node entered this state."""
    started: bool = False
    """Whether the first irreversible step was taken: the driver label changed."""
    old_pod_uid: str = ""
    attempt: Count = 0
    cause: str = ""
    """Why the last attempt failed, or why this one was started."""
    outside: bool = False
    """Whether the result counts neither for nor against the target: the node had failed on an
    earlier target, or is only validated again."""
    unbegun: bool = False
    """Whether the node failed before its driver agent began to change the driver: no harm by it."""
    unproven: bool = False
    """Whether the node failed since its last validation; it must be validated before release."""
    asked: bool = False
    """Whether a person requested this attempt, which then runs even if the evidence is valid."""
    cordon_adopted: bool = False
    """Whether the cordon came from an upgrade that Sluice took over; it is removed at the end."""
    deadline: float | None = None
    """When the state times out, in Unix seconds; None means never."""
    deadline_renewed: bool = False
    """Whether the deadline was restarted after a reboot, which happens once per state."""
    paused: bool = False
    """Whether discovery pauses operands that do not belong to Sluice."""
    frozen_seconds: float = 0.0
    back_off_until: float = 0.0
    back_off_seconds: float = 0.0
    edits: Count = 0
    """How many foreign edits were reverted under this token."""
    revalidated: str = ""
    """The driver instance for which a failed node was validated again."""
    restarts: tuple[float, ...] = ()
    """When the driver of a done node restarted, within the last hour."""
    restarts_before: dict[str, Count] | None = None
    """How often the driver containers had restarted before the operation, by uid of their pod; None
    if that was not recorded."""
    failed_gpus: tuple[GpuIdentity, ...] | None = None
    """The GPUs that had failed before the operation; None if that was not recorded."""
    mig_digest: str = ""
    """The MIG geometry that was applied last, or could not be."""
    mig_failed: str = ""
    """Why it could not be applied in this boot; empty: it was."""
    evidence: Evidence | None = None
    validation_pod: str = ""
    """The order of the validation that a pod with a GPU has to confirm: token and op."""
    took: dict[str, float] = {}
    """Seconds that the node's last upgrade spent in each state, and its bring-up in those that
    begin with `bring-up`: for forecasts; nothing is decided from them."""
    was_done: bool = False
    """Whether the node was `upgrade-done` by a proof before: its startup taint was removed then."""
    seen: dict[str, str] = {}
    """The revision of each source that the last write lowering availability was based on."""


class ValidationPod(Message, frozen=True, kw_only=True):
    """What became of the pod that asks for a GPU, to confirm a validation of its node."""

    node_uid: str
    order: str
    """Token and op of the validation that it confirms."""
    passed: bool | None = None
    """None: it has not ended yet."""
    message: str = ""
    """What it did, or what it waits for, for people."""

    def is_of(self, node_uid: str, order: object) -> bool:
        """Whether this is about that validation; another pod's success proves nothing."""
        return (self.node_uid, self.order) == (node_uid, str(order))


def validation_pod_of(annotations: Mapping[str, str]) -> ValidationPod | None:
    """Return what a Node's annotation says of such a pod; an unreadable one confirms nothing."""
    text = annotations.get(VALIDATION_POD_ANNOTATION, "")
    try:
        return decode(ValidationPod, text.encode()) if text else None
    except MalformedMessage:
        return None
