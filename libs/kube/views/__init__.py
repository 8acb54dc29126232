"""Typed views of Kubernetes objects: only the fields in use, tolerant of all others.

Attributes are snake_case, the wire camelCase; times are text. A view is never written back:
writes are plain objects with the owned fields only.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

if TYPE_CHECKING:
    Time = str
else:
    Time = str | None  # null on the wire if unset; decoded as empty


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A part of an object."""


def settle(view: View, **fields: Any) -> None:
    """Set fields of a view whose `__post_init__` runs; later on it is frozen.

    What runs several times for each Node sets its field itself, which takes half as long.
    """
    for name, value in fields.items():
        msgspec.structs.force_setattr(view, name, value)


MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""Of a pod that a kubelet runs by itself, and no eviction ends."""


class OwnerReference(View, frozen=True, kw_only=True):
    kind: str
    name: str
    uid: str
    controller: bool = False


class ManagedFields(View, frozen=True, kw_only=True):
    """Fields owned by a manager; `fields_v1` is undecoded."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: str = ""
    fields_v1: msgspec.Raw = msgspec.Raw(b"{}")

    def __post_init__(self) -> None:
        # The decoded slice would keep the whole response in memory.
        msgspec.structs.force_setattr(self, "fields_v1", self.fields_v1.copy())


class Metadata(View, frozen=True, kw_only=True):
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

    def __post_init__(self) -> None:
        if self.creation_timestamp:
            parse_time(self.creation_timestamp)

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Object(View, frozen=True, kw_only=True):
    """Base of all views: any object, by its metadata alone."""

    metadata: Metadata


class Taint(View, frozen=True, kw_only=True):
    key: str
    effect: str
    value: str = ""
    time_added: str = ""


class Condition(View, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Time = ""
    observed_generation: int = 0

    def __post_init__(self) -> None:
        if not self.last_transition_time:
            settle(self, last_transition_time="")


if TYPE_CHECKING:
    _Conditions = tuple[Condition, ...]
else:
    _Conditions = tuple[Condition, ...] | None  # null on the wire if unknown; decoded as empty


class NodeSpec(View, frozen=True, kw_only=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeInfo(View, frozen=True, kw_only=True):
    boot_id: str = msgspec.field(name="bootID", default="")
    kernel_version: str = ""
    architecture: str = ""


class NodeStatus(View, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()
    allocatable: dict[str, str] = {}
    capacity: dict[str, str] = {}


class Node(Object, frozen=True, kw_only=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ContainerState(View, frozen=True, kw_only=True):
    """Exactly one is set."""

    waiting: "Waiting | None" = None
    running: "Running | None" = None
    terminated: "Terminated | None" = None


class Waiting(View, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class Running(View, frozen=True, kw_only=True):
    started_at: Time = ""

    def __post_init__(self) -> None:
        if not self.started_at:
            settle(self, started_at="")
        else:
            parse_time(self.started_at)


class Terminated(View, frozen=True, kw_only=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: Time = ""
    finished_at: Time = ""

    def __post_init__(self) -> None:
        settle(self, started_at=self.started_at or "", finished_at=self.finished_at or "")


class ContainerStatus(View, frozen=True, kw_only=True):
    name: str
    ready: bool = False
    restart_count: int = 0
    container_id: str = msgspec.field(name="containerID", default="")
    image_id: str = msgspec.field(name="imageID", default="")
    """Empty until the image is there."""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    """How its last run ended."""


class ResourceRequirements(View, frozen=True, kw_only=True):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class Container(View, frozen=True, kw_only=True):
    name: str
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()


class PodSpec(View, frozen=True, kw_only=True):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    termination_grace_period_seconds: int | None = None


class PodStatus(View, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Object, frozen=True, kw_only=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class LeaseSpec(View, frozen=True, kw_only=True):
    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    renew_time: str | None = None
    lease_transitions: Int32 | None = None


class Lease(Object, frozen=True, kw_only=True):
    spec: LeaseSpec = LeaseSpec()


class DaemonSetStatus(View, frozen=True, kw_only=True):
    observed_generation: int = 0
    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_ready: int = 0
    number_available: int = 0
    number_misscheduled: int = 0


class DaemonSet(Object, frozen=True, kw_only=True):
    """The spec is not read."""

    status: DaemonSetStatus = DaemonSetStatus()


class ControllerRevision(Object, frozen=True, kw_only=True):
    revision: int = 0


class CustomResourceDefinitionStatus(View, frozen=True, kw_only=True):
    """Absent in an object that was just created."""

    conditions: _Conditions = ()

    def __post_init__(self) -> None:
        if not self.conditions:
            settle(self, conditions=())


class CustomResourceDefinition(Object, frozen=True, kw_only=True):
    status: CustomResourceDefinitionStatus = CustomResourceDefinitionStatus()


def format_time(seconds: float) -> str:
    """Format Unix seconds as `metav1.Time` (conditions, events)."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """Format Unix seconds as `metav1.MicroTime` (leases)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> float:
    """Return the Unix seconds of either format; a time without a zone is UTC."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


def set_condition(
    conditions: tuple[Condition, ...],
    *,
    type: str,
    status: Literal["True", "False", "Unknown"],
    reason: str,
    message: str,
    generation: int,
    now: float,
) -> tuple[Condition, ...]:
    """Return the conditions with this one set; the identical tuple if nothing changed.

    A caller that compares by `is` skips the write. The transition time moves only with the status,
    not with reason or message.
    """
    before = next((condition for condition in conditions if condition.type == type), None)
    since = (
        before.last_transition_time
        if before is not None and before.status == status and before.last_transition_time
        else format_time(now)
    )
    after = Condition(
        type=type,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )
    if before is None:
        return (*conditions, after)
    if before == after:
        return conditions
    return tuple(after if condition is before else condition for condition in conditions)
