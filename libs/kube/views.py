"""What we read of Kubernetes objects: only the fields that we use, and tolerant of all others.

Attributes are in our spelling, the wire keeps Kubernetes'. Nothing here is ever written back whole:
what we write are plain objects that hold only what we own.
"""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    Time = str
else:
    Time = str | None  # Kubernetes writes null for a time that nobody has set; here it is empty


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A part of an object."""


class OwnerReference(View, frozen=True, kw_only=True):
    """Whom an object belongs to."""

    kind: str
    name: str
    uid: str
    controller: bool = False


class ManagedFields(View, frozen=True, kw_only=True):
    """Which fields a manager owns; `fields_v1` as the server has it."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: str = ""
    fields_v1: msgspec.Raw = msgspec.Raw(b"{}")

    def __post_init__(self) -> None:
        # As decoded it would keep the whole answer in memory that it was a part of.
        msgspec.structs.force_setattr(self, "fields_v1", self.fields_v1.copy())


class Metadata(View, frozen=True, kw_only=True):
    """What all objects have."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    managed_fields: tuple[ManagedFields, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone where there are no namespaces."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Object(View, frozen=True, kw_only=True):
    """Any object, by its metadata alone; what reads more of a kind extends this."""

    metadata: Metadata


class Taint(View, frozen=True, kw_only=True):
    """What keeps pods off a node."""

    key: str
    effect: str
    value: str = ""
    time_added: str = ""


class Condition(View, frozen=True, kw_only=True):
    """One thing that is known about an object, since when and why."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Time = ""
    observed_generation: int = 0

    def __post_init__(self) -> None:
        if not self.last_transition_time:
            msgspec.structs.force_setattr(self, "last_transition_time", "")


if TYPE_CHECKING:
    _Conditions = tuple[Condition, ...]
else:
    _Conditions = tuple[Condition, ...] | None  # null where nothing is known yet; here it is empty


class NodeSpec(View, frozen=True, kw_only=True):
    """What is wanted of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeInfo(View, frozen=True, kw_only=True):
    """What the kubelet says its machine is."""

    boot_id: str = msgspec.field(name="bootID", default="")
    kernel_version: str = ""
    architecture: str = ""


class NodeStatus(View, frozen=True, kw_only=True):
    """What the kubelet says of its node."""

    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()
    allocatable: dict[str, str] = {}
    capacity: dict[str, str] = {}


class Node(Object, frozen=True, kw_only=True):
    """A machine of the cluster."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ContainerState(View, frozen=True, kw_only=True):
    """One of three is there."""

    waiting: "Waiting | None" = None
    running: "Running | None" = None
    terminated: "Terminated | None" = None


class Waiting(View, frozen=True, kw_only=True):
    """Not running yet, or not again."""

    reason: str = ""
    message: str = ""


class Running(View, frozen=True, kw_only=True):
    """Since when."""

    started_at: Time = ""

    def __post_init__(self) -> None:
        if not self.started_at:
            msgspec.structs.force_setattr(self, "started_at", "")


class Terminated(View, frozen=True, kw_only=True):
    """How it ended."""

    exit_code: int = 0
    reason: str = ""
    started_at: Time = ""
    finished_at: Time = ""

    def __post_init__(self) -> None:
        if not self.started_at:
            msgspec.structs.force_setattr(self, "started_at", "")
        if not self.finished_at:
            msgspec.structs.force_setattr(self, "finished_at", "")


class ContainerStatus(View, frozen=True, kw_only=True):
    """How one container of a pod is."""

    name: str
    ready: bool = False
    restart_count: int = 0
    container_id: str = msgspec.field(name="containerID", default="")
    state: ContainerState = ContainerState()


class ResourceRequirements(View, frozen=True, kw_only=True):
    """What a container asks for and may use."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class Container(View, frozen=True, kw_only=True):
    """One container of a pod, as wanted."""

    name: str
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()


class PodSpec(View, frozen=True, kw_only=True):
    """What is wanted of a pod."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    termination_grace_period_seconds: int | None = None


class PodStatus(View, frozen=True, kw_only=True):
    """What the kubelet says of a pod."""

    phase: str = ""
    reason: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Object, frozen=True, kw_only=True):
    """Containers that live and die together on one node."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class LeaseSpec(View, frozen=True, kw_only=True):
    """Who holds it, and since when."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True, kw_only=True):
    """A claim that must be renewed."""

    spec: LeaseSpec = LeaseSpec()


class DaemonSetStatus(View, frozen=True, kw_only=True):
    """How far the controller is with it."""

    observed_generation: int = 0
    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_ready: int = 0
    number_available: int = 0
    number_misscheduled: int = 0


class DaemonSet(Object, frozen=True, kw_only=True):
    """One pod on each node that it selects; the spec is its author's business."""

    status: DaemonSetStatus = DaemonSetStatus()


class ControllerRevision(Object, frozen=True, kw_only=True):
    """One version of a DaemonSet's template."""

    revision: int = 0


class CustomResourceDefinitionStatus(View, frozen=True, kw_only=True):
    """Whether the server serves a custom resource; it says nothing of one that was just made."""

    conditions: _Conditions = ()

    def __post_init__(self) -> None:
        if not self.conditions:
            msgspec.structs.force_setattr(self, "conditions", ())


class CustomResourceDefinition(Object, frozen=True, kw_only=True):
    """A kind that somebody added to the server."""

    status: CustomResourceDefinitionStatus = CustomResourceDefinitionStatus()
