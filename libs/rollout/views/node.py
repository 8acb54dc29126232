"""One Node: what it says, what we wrote on it, who else wrote there, and its machine."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.node import MANAGER, NodeLease, NodeRecord, NodeRequest
from libs.contracts.reports import Evidence, Usage
from libs.rollout.decision import Wait
from libs.rollout.views.machine import (
    Components,
    DriverPod,
    PodEviction,
    PreflightQuery,
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


class MalformedAnnotation(msgspec.Struct, frozen=True):
    """What is there cannot be read, and why."""

    reason: str


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A Node with GPUs, or one that once was ours, at one revision."""

    name: str
    uid: str
    revision: str
    boot_id: str
    kernel: str = ""
    created: float = 0.0

    # what is wanted of it
    pool: str = ""
    """Key of the pool that selects it now; empty: none does."""
    variant: str = ""
    """Which of the pool's builds it gets; empty: that cannot be told yet."""
    excluded: bool = False
    """`gpu.deploy.driver=false` or `operands=false`: it is to have no driver of ours."""

    # what it says
    ready: bool = True
    cordoned: bool = False
    cordon_taint: bool = False
    """The node lifecycle controller has followed a cordon with its taint."""
    gpus: int = 0
    upgrade_last: bool = False
    """It carries NATS, our cluster roles or the control plane: its turn comes last."""

    # what we wrote on it, as it stands there now
    state: str = ""
    driver_label: str = ""
    lease: NodeLease | MalformedAnnotation | None = None
    record: NodeRecord | MalformedAnnotation | None = None
    initially_cordoned: bool = False
    field_managers: Mapping[NodeField, tuple[str, ...]] = {}
    """Which managers own each field that anybody owns; `MANAGER` is us."""
    last_managers: Mapping[NodeField, str] = {}
    """Which manager wrote a field last that we would have expected otherwise."""

    # what people ask of it
    skip: bool = False
    keep_cordoned: bool = False
    request: NodeRequest | None = None
    requested: bool = False
    """The GPU Operator's annotation that asks for an upgrade."""
    safe_load: bool = False
    """Its driver waits until we let it load."""

    # its machine
    components: Components = {}
    driver_pods: tuple[DriverPod, ...] = ()
    loaded: LoadedDriver | None = None
    """The driver in the kernel, as the driver agent last said in this boot."""
    modules_reported: bool = False
    """The driver agent has said in this boot what is loaded: `loaded` None means none is."""
    gate: Gate | None = None
    evidence: Evidence | None = None
    """The validator's last, of this node uid and boot."""
    usage: Usage | None = None
    pods: tuple[WorkloadPod, ...] | None = None
    """None: nobody is looking; it is looked at while the node is in flight or next."""
    preflight: PreflightQuery | None = None

    # what we are doing about it
    evictions: tuple[PodEviction, ...] = ()
    """Pods that an eviction of ours is at work on."""
    write_pending: bool = False
    """A write or deletion of ours is under way and not answered: nothing is decided now."""
    unconfirmed_write_at: float | None = None
    """When we gave up a write that got no answer and was made for the Node as it is now: it may yet
    be carried out."""
    last_wait: Wait | None = None
    """What it waited for after the last decision."""

    def is_owned(self, field: NodeField) -> bool:
        """Whether we own it, alone or with others."""
        return MANAGER in self.field_managers.get(field, ())

    def has_our_value(self, field: NodeField) -> bool:
        """Whether it says something there that we wrote: what we emptied says nothing."""
        return self.is_owned(field) and bool(
            {
                NodeField.STATE: self.state,
                NodeField.DRIVER: self.driver_label,
                NodeField.LEASE: self.lease,
                NodeField.RECORD: self.record,
            }[field]
        )

    def other_managers(self, field: NodeField) -> tuple[str, ...]:
        """Who else owns it."""
        return tuple(name for name in self.field_managers.get(field, ()) if name != MANAGER)

    @property
    def is_managed(self) -> bool:
        """Whether anything on it is ours."""
        return self.lease is not None or any(
            MANAGER in managers for managers in self.field_managers.values()
        )
