"""One Node: its labels and annotations, field managers, and its machine."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from libs.contracts.commands import Order
from libs.contracts.diagnoses import Diagnosis
from libs.contracts.facts import Gate, LoadedDriver, NextKernel
from libs.contracts.node import (
    MANAGER,
    LeaseOwner,
    NodeLease,
    NodeRecord,
    NodeRequest,
    ValidationPod,
)
from libs.contracts.reports import Evidence, Usage
from libs.rollout.decision import NodeTaint, Wait
from libs.rollout.views.machine import (
    Components,
    DriverPod,
    FailedGpu,
    GpuVerdict,
    ImagePull,
    PodEviction,
    PreflightQuery,
    WantedMig,
    WorkloadPod,
)


class NodeField(StrEnum):
    """The fields of a Node that we share with others."""

    CORDON = "spec.unschedulable"
    STATE = "state"
    DRIVER = "driver"
    LEASE = "lease"
    RECORD = "record"
    INITIALLY_CORDONED = "initially-cordoned"
    REQUEST = "request"
    REQUESTED = "requested"
    SAFE_LOAD = "safe-load"
    MIG_STATE = "mig-state"
    TAINTS = "spec.taints"


_TAINTS = NodeField.TAINTS

ENGINE_OWNERS: Final = frozenset({LeaseOwner.UPGRADE, LeaseOwner.MIG})
"""The owners of leases that the engine takes and ends. Another owner's node is left alone."""


class MalformedAnnotation(msgspec.Struct, frozen=True):
    reason: str


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A Node with GPUs, or one that we managed once, at one revision."""

    name: str
    uid: str
    revision: str
    boot_id: str
    kernel: str = ""
    created: float = 0.0

    # what the policies want
    pool: str = ""
    """Key of the pool that selects the node now; empty: none does."""
    variant: str = ""
    """Which of the pool's builds the node gets; empty: not known yet."""
    excluded: bool = False
    """`gpu.deploy.driver=false` or `operands=false`: no driver of ours is wanted."""

    mig: WantedMig | None = None
    """None: its GPUs stay divided as they are."""
    plugin_config: str = ""
    """The configuration of its device plugin, as its label names it; empty: the default."""

    # what the Node reports
    ready: bool = True
    cordoned: bool = False
    cordon_taint: bool = False
    """The node lifecycle controller has added the taint of a cordon."""
    taints: tuple[NodeTaint, ...] = ()
    gpus: int = 0
    allocatable: Mapping[str, int] = {}
    """What pods can have of NVIDIA's resources, by name."""
    upgrade_last: bool = False
    """The node runs NATS, our cluster roles or the control plane: it is upgraded last."""

    # what we wrote, as it is now
    state: str = ""
    driver_label: str = ""
    lease: NodeLease | MalformedAnnotation | None = None
    """The claim, where there is no other: from then on the lease is the person's."""
    claim: NodeLease | MalformedAnnotation | None = None
    """The lease that a person waits for until the one of an operation ends."""
    record: NodeRecord | MalformedAnnotation | None = None
    initially_cordoned: bool = False
    mig_state: str = ""
    field_managers: Mapping[NodeField, tuple[str, ...]] = {}
    """The managers of each owned field; `MANAGER` is us."""
    last_managers: Mapping[NodeField, str] = {}
    """The manager that wrote a field last, where its value is not the expected one."""

    # what people request
    skip: bool = False
    keep_cordoned: bool = False
    request: NodeRequest | None = None
    requested: bool = False
    """The annotation of the GPU Operator that requests an upgrade."""
    safe_load: bool = False
    """The driver waits until we let it load."""
    validation_pod: ValidationPod | None = None
    """What became of the pod that confirms a validation of the node, or of an earlier one."""

    # the machine
    components: Components = {}
    driver_pods: tuple[DriverPod, ...] = ()
    loaded: LoadedDriver | None = None
    """The loaded driver, as the driver agent last reported in this boot."""
    modules_reported: bool = False
    """The driver agent has reported in this boot: `loaded` None then means no driver is loaded."""
    obstacle: Diagnosis | None = None
    """Why no driver is loaded, as far as the driver agent knows."""
    outdated_diagnoses: frozenset[Diagnosis] = frozenset()
    """What the evidence names and is so no longer, likewise."""
    gate: Gate | None = None
    no_gpus: str = ""
    """Why no container can have some of its GPUs, as the driver agent says; for people only."""
    runtime_problem: str = ""
    """Why its container runtime is not configured as wanted, likewise for people only."""
    next_kernel: NextKernel | None = None
    """The kernel that it boots next, as the discovery agent says; likewise for people only."""
    runtime_digest: str = ""
    """Of what containers with a GPU get now, as the driver agent says; empty: not known."""
    evidence: Evidence | None = None
    """The validator's last evidence, of this node uid and boot."""
    usage: Usage | None = None
    gpu_verdict: GpuVerdict | None = None
    """The telemetry agent's last one, of this node uid."""
    pods: tuple[WorkloadPod, ...] | None = None
    """None: not watched; pods are watched while the node is in flight or about to start."""
    preflight: PreflightQuery | None = None
    image_pull: ImagePull | None = None
    """None: no pod brings an image."""

    # our effects in progress
    evictions: tuple[PodEviction, ...] = ()
    """Pods that an eviction job of ours is removing."""
    write_pending: bool = False
    """A write or deletion of ours is not answered yet: nothing is decided now."""
    unconfirmed_write_at: float | None = None
    """When we gave up a write that was never answered and was made for the current revision: it may
    still be carried out."""
    last_wait: Wait | None = None
    """The wait after the last decision."""

    # A Node that is created anew under its old name may come with the annotations of the old one,
    # as from a backup. They say nothing about this machine: tokens begin again, and no driver runs.

    @property
    def current_record(self) -> NodeRecord | None:
        """The record, unless it belongs to an earlier Node of the same name."""
        record = self.record
        return record if isinstance(record, NodeRecord) and record.node_uid == self.uid else None

    @property
    def current_lease(self) -> NodeLease | None:
        """The lease, unless it belongs to an earlier Node of the same name."""
        lease = self.lease
        return lease if isinstance(lease, NodeLease) and lease.node_uid == self.uid else None

    @property
    def upgrade_lease(self) -> NodeLease | None:
        """The lease, if the engine owns it."""
        lease = self.current_lease
        return lease if lease and lease.owner in ENGINE_OWNERS else None

    def is_owned(self, field: NodeField) -> bool:
        return MANAGER in self.field_managers.get(field, ())

    def has_our_value(self, field: NodeField) -> bool:
        """Whether we own the field and it has a value: an emptied field does not count."""
        return self.is_owned(field) and bool(
            {
                NodeField.STATE: self.state,
                NodeField.DRIVER: self.driver_label,
                NodeField.LEASE: self.lease,
                NodeField.RECORD: self.record,
            }[field]
        )

    def other_managers(self, field: NodeField) -> tuple[str, ...]:
        return tuple(name for name in self.field_managers.get(field, ()) if name != MANAGER)

    @property
    def failed_gpus(self) -> tuple[FailedGpu, ...]:
        """The GPUs that are failed in this boot, as far as reported."""
        verdict = self.gpu_verdict
        return verdict.failed if verdict is not None and verdict.boot_id == self.boot_id else ()

    @property
    def highest_order(self) -> Order:
        """The highest order of a command for this Node that is stored, or that an agent reported.

        The scheduler alone sends commands, and no edit of the Node changes them.
        """
        highest = Order(0, 0)
        for component in self.components.values():
            highest = max(highest, component.highest_order)
            if component.slot is not None and component.slot.node_uid == self.uid:
                highest = max(highest, component.slot.order)
        return highest

    @property
    def has_damaged_record(self) -> bool:
        """Whether the record is unreadable, on a node that has had a command of ours."""
        return isinstance(self.record, MalformedAnnotation) and any(self.highest_order)

    @property
    def is_managed(self) -> bool:
        """Whether we own a field of the node, or it has a lease or a damaged record.

        The list of taints says nothing: it may stay ours after a removal.
        """
        return (
            self.lease is not None
            or any(self.is_owned(each) for each in self.field_managers if each is not _TAINTS)
            or self.has_damaged_record
        )


Lease = NodeLease | MalformedAnnotation | None


def lease_and_claim(lease: Lease, claim: Lease, uid: str) -> tuple[Lease, Lease]:
    """Return the lease that holds now, and the claim that waits for its end.

    A claim holds as soon as no other lease does. It can be a person's only.
    """
    if isinstance(claim, NodeLease):
        if claim.node_uid != uid:
            return lease, None
        if claim.owner is not LeaseOwner.HUMAN:
            claim = MalformedAnnotation(f"a claim of the owner {claim.owner.value}")
    void = isinstance(lease, NodeLease) and lease.node_uid != uid
    if claim is not None and (lease is None or void):
        return claim, None
    return lease, claim
