"""Views of the objects that controllers and kubelets read, leaner than those of `libs.kube`.

Templates, selectors and affinities stay plain data: they are passed on or evaluated, never edited.
"""

from typing import Any

import msgspec

from libs.kube.resources import Resource
from libs.kube.views import (
    Condition,
    ContainerStatus,
    LeaseSpec,
    ManagedFields,
    Metadata,
    Object,
    OwnerReference,
    Taint,
    View,
)
from libs.kube.views import Container as PlainContainer


class Meta(Metadata, frozen=True, kw_only=True):
    """Metadata without managed fields."""

    deletion_grace_period_seconds: int | None = None
    managed_fields: tuple[ManagedFields, ...] = msgspec.field(default=(), name="(not read)")

    @property
    def owner(self) -> OwnerReference | None:
        """The owner that is the controller."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Toleration(View, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class FieldRef(View, frozen=True, kw_only=True):
    field_path: str = ""


class EnvSource(View, frozen=True, kw_only=True):
    """Where a variable's value comes from; only fields of the pod are read."""

    field_ref: FieldRef | None = None


class EnvVar(View, frozen=True, kw_only=True):
    name: str
    value: str = ""
    value_from: EnvSource | None = None


class Container(PlainContainer, frozen=True, kw_only=True):
    env: tuple[EnvVar, ...] = ()
    termination_message_policy: str = ""


class PodSpec(View, frozen=True, kw_only=True):
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: dict[str, Any] = {}
    tolerations: tuple[Toleration, ...] = ()
    restart_policy: str = "Always"
    scheduler_name: str = "default-scheduler"
    host_network: bool = False
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    termination_grace_period_seconds: int = 30


class PodStatus(View, frozen=True, kw_only=True):
    phase: str = ""
    start_time: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Object, frozen=True, kw_only=True):
    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def condition(self, kind: str) -> Condition | None:
        return next((each for each in self.status.conditions if each.type == kind), None)

    @property
    def ready(self) -> bool:
        found = self.condition("Ready")
        return found is not None and found.status == "True"

    @property
    def deleting(self) -> bool:
        return bool(self.metadata.deletion_timestamp)

    @property
    def over(self) -> bool:
        """Whether the containers have ended for good."""
        return self.status.phase in ("Succeeded", "Failed")


class NodeCondition(Condition, frozen=True, kw_only=True):
    last_heartbeat_time: str | None = None


class NodeSpec(View, frozen=True, kw_only=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(View, frozen=True, kw_only=True):
    conditions: tuple[NodeCondition, ...] = ()
    allocatable: dict[str, str] = {}


class Node(Object, frozen=True, kw_only=True):
    """A node without its images."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def condition(self, kind: str) -> NodeCondition | None:
        return next((each for each in self.status.conditions if each.type == kind), None)


class Template(View, frozen=True, kw_only=True):
    """The part of a template that decides where its pods go."""

    spec: PodSpec = PodSpec()


class RollingUpdate(View, frozen=True, kw_only=True):
    max_unavailable: int | str = 1


class UpdateStrategy(View, frozen=True, kw_only=True):
    """`RollingUpdate`: the controller replaces outdated pods; `OnDelete`: other clients do."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdate = RollingUpdate()


class DaemonSetSpec(View, frozen=True, kw_only=True):
    selector: dict[str, Any] = {}
    template: dict[str, Any] = {}
    update_strategy: UpdateStrategy = UpdateStrategy()
    min_ready_seconds: int = 0
    revision_history_limit: int = 10


class DaemonSetStatus(View, frozen=True, kw_only=True):
    observed_generation: int = 0
    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0
    number_misscheduled: int = 0
    number_ready: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0
    number_unavailable: int = 0


class DaemonSet(Object, frozen=True, kw_only=True):
    metadata: Meta
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


class ControllerRevision(Object, frozen=True, kw_only=True):
    metadata: Meta
    revision: int = 0
    data: dict[str, Any] = {}


class ReplicaSetSpec(View, frozen=True, kw_only=True):
    replicas: int = 1
    selector: dict[str, Any] = {}
    template: dict[str, Any] = {}


class ReplicaSetStatus(View, frozen=True, kw_only=True):
    observed_generation: int = 0
    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int = 0


class ReplicaSet(Object, frozen=True, kw_only=True):
    metadata: Meta
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class JobSpec(View, frozen=True, kw_only=True):
    completions: int = 1
    parallelism: int = 1
    backoff_limit: int = 6
    template: dict[str, Any] = {}


class JobStatus(View, frozen=True, kw_only=True):
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: str = ""
    completion_time: str = ""
    conditions: tuple[Condition, ...] = ()


class Job(Object, frozen=True, kw_only=True):
    metadata: Meta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class BudgetSpec(View, frozen=True, kw_only=True):
    selector: dict[str, Any] | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class BudgetStatus(View, frozen=True, kw_only=True):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()


class Budget(Object, frozen=True, kw_only=True):
    metadata: Meta
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class Lease(Object, frozen=True, kw_only=True):
    metadata: Meta
    spec: LeaseSpec = LeaseSpec()


NODES = Resource(plural="nodes", kind="Node", namespaced=False, creatable=False, view=Node)
PODS = Resource(plural="pods", kind="Pod", view=Pod)
LEASES = Resource(group="coordination.k8s.io", plural="leases", kind="Lease", view=Lease)
DAEMON_SETS = Resource(group="apps", plural="daemonsets", kind="DaemonSet", view=DaemonSet)
REVISIONS = Resource(
    group="apps", plural="controllerrevisions", kind="ControllerRevision", view=ControllerRevision
)
REPLICA_SETS = Resource(group="apps", plural="replicasets", kind="ReplicaSet", view=ReplicaSet)
JOBS = Resource(group="batch", plural="jobs", kind="Job", view=Job)
BUDGETS = Resource(
    group="policy", plural="poddisruptionbudgets", kind="PodDisruptionBudget", view=Budget
)
