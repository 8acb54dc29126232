"""The objects that this role reads and writes, and their informers.

Operands are read completely, for comparison; of other objects only what is needed is kept, since
there may be thousands of nodes.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from libs.contracts.gpus import GPU_RESOURCES
from libs.contracts.node import (
    RECORD_ANNOTATION,
    VALIDATION_POD_ANNOTATION,
    ValidationPod,
    validation_pod_of,
)
from libs.contracts.rollout import RolloutStatus
from libs.kube import resources, views
from libs.kube.client import Kube
from libs.kube.resources import (
    CustomObject,
    Resource,
    custom_resource,
    custom_resources,
)
from libs.kube.views.lean import keep_metadata
from libs.policy.kinds import GPU_CLUSTER, POLICY_KINDS, ROLLOUT
from libs.policy.plugin_config.texts import readable_texts
from libs.policy.progress import ObservedRollout, observe_rollout
from libs.policy.render.agents import AGENTS
from libs.policy.render.claims import DEVICE_CLASS_GROUP, DEVICE_CLASS_KIND
from libs.policy.render.claims import DEVICE_CLASSES as DEVICE_CLASS_NAMES
from libs.policy.render.rendered import (
    EXPORTER,
    MANAGED_BY,
    MONITOR_GROUP,
    MONITOR_KIND,
    NODE_STATUS,
)
from libs.runtime.env import Env
from libs.runtime.subscriptions import join_subscriptions
from services.cluster_role import LeadingInformers

if TYPE_CHECKING:
    from libs.kube.informer import Informer

MANAGER: Final = "sluice-driver"
"""The field manager of this role's writes."""

MANAGED_LABEL: Final = "app.kubernetes.io/managed-by"
_OF_GPU_OPERATOR: Final = frozenset(("ClusterPolicy", "NVIDIADriver", "GPUCluster"))
_APPLIED_HASH: Final = "nvidia.com/last-applied-hash"
"""On objects of the GPU Operator, even after their owner reference was removed."""


class PolicyObject(CustomObject, frozen=True, kw_only=True):
    """A policy with its status."""

    status: Any = None


class RuntimeHandler(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    runtime_handlers: tuple[RuntimeHandler, ...] | None = None
    """As the container runtime reports them to the kubelet."""
    allocatable: dict[str, str] | None = None
    node_info: views.NodeInfo = views.NodeInfo()


_ANNOTATIONS: Final = frozenset((RECORD_ANNOTATION, VALIDATION_POD_ANNOTATION))


class Node(views.Object, frozen=True, kw_only=True):
    """A node with its labels, its record, its runtime handlers and its allocatable GPUs."""

    status: NodeStatus = NodeStatus()

    def __post_init__(self) -> None:
        keep_metadata(self, annotations=_ANNOTATIONS)
        found = (self.status.allocatable or {}).items()
        gpus = {name: count for name, count in found if name.startswith(GPU_RESOURCES)}
        views.settle(self, status=msgspec.structs.replace(self.status, allocatable=gpus))

    @property
    def record(self) -> str:
        """The encoded node record; empty if there is none."""
        return self.metadata.annotations.get(RECORD_ANNOTATION, "")

    @property
    def validation_pod(self) -> ValidationPod | None:
        """What was written about the pod that confirms a validation."""
        return validation_pod_of(self.metadata.annotations)

    @property
    def gpu_resource(self) -> str:
        """What a pod asks for to get a GPU, MIG devices first; empty: it gets none."""
        found = self.status.allocatable or {}
        offered = sorted(name for name, count in found.items() if count not in ("", "0"))
        return offered[-1] if offered else ""

    @property
    def handlers(self) -> tuple[str, ...]:
        return tuple(handler.name for handler in self.status.runtime_handlers or ())

    @property
    def boot_id(self) -> str:
        return self.status.node_info.boot_id

    @property
    def offers_gpus(self) -> bool:
        """Whether the kubelet gives GPUs to pods that ask for them."""
        return any(count not in ("", "0") for count in (self.status.allocatable or {}).values())


class ValidatingPod(views.Pod, frozen=True, kw_only=True):
    """A pod that confirms the validation of a node."""

    def is_made_for(self, node: str, node_uid: str) -> bool:
        owners = [owner.uid for owner in self.metadata.owner_references]
        return self.spec.node_name == node and owners == [node_uid]


class Specified(views.Object, frozen=True, kw_only=True):
    """An operand that has nothing but a spec that is ours."""

    spec: Any = None


class DaemonSet(views.DaemonSet, frozen=True, kw_only=True):
    """With its status, by which its pods are followed."""

    spec: Any = None


class ConfigMap(views.Object, frozen=True, kw_only=True):
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None

    def __post_init__(self) -> None:
        # Of foreign ConfigMaps, keys are needed, and texts that may be configurations of the
        # device plugin; other values may be large.
        if self.metadata.labels.get(MANAGED_LABEL) != MANAGED_BY:
            data = self.data or {}
            texts = readable_texts(data)
            short = {key: texts.get(key, "") for key in data}
            views.settle(self, data=short, binary_data=dict.fromkeys(self.binary_data or {}, ""))

    @property
    def keys(self) -> tuple[str, ...]:
        return (*(self.data or {}), *(self.binary_data or {}))


class RuntimeClass(views.Object, frozen=True, kw_only=True):
    handler: str = ""


class Rollout(views.Object, frozen=True, kw_only=True):
    """A Rollout with its status as text: it is searched for the drivers that it names, and read
    for how far the rollout is."""

    status: msgspec.Raw = msgspec.Raw(b"")

    def __post_init__(self) -> None:
        # Without a copy, the Raw keeps the whole response in memory.
        views.settle(self, status=self.status.copy())

    @property
    def status_text(self) -> str:
        return bytes(self.status).decode()

    @property
    def observed(self) -> ObservedRollout | None:
        """How far the rollout is; None: the scheduler has not told it, or not readably."""
        try:
            return observe_rollout(msgspec.json.decode(self.status, type=RolloutStatus))
        except msgspec.DecodeError:
            return None


NODES = resources.NODES.viewed_as(Node)
DAEMON_SETS = resources.DAEMON_SETS.viewed_as(DaemonSet)
CONFIGS = resources.CONFIG_MAPS.viewed_as(ConfigMap)
RUNTIME_CLASSES = resources.RUNTIME_CLASSES.viewed_as(RuntimeClass)
DEVICE_CLASSES = Resource(
    group=DEVICE_CLASS_GROUP,
    plural="deviceclasses",
    kind=DEVICE_CLASS_KIND,
    namespaced=False,
    optional=True,
    view=Specified,
)
"""Served since Kubernetes 1.34."""
VALIDATION_PODS = resources.PODS.viewed_as(ValidatingPod)
SERVICES = Resource(plural="services", kind="Service", view=Specified)
SERVICE_MONITORS = Resource(
    group=MONITOR_GROUP,
    plural="servicemonitors",
    kind=MONITOR_KIND,
    optional=True,
    view=Specified,
)
ROLLOUTS = custom_resource(ROLLOUT, Rollout)
GPU_CLUSTERS: Final = custom_resource(GPU_CLUSTER, views.Object, optional=True)
POLICIES: Final = custom_resources(POLICY_KINDS, PolicyObject)
"""By kind."""

OPERANDS: Final[Mapping[str, Resource[Any]]] = {
    resource.kind: resource
    for resource in (
        DAEMON_SETS,
        CONFIGS,
        RUNTIME_CLASSES,
        DEVICE_CLASSES,
        SERVICES,
        SERVICE_MONITORS,
    )
}
"""The rendered kinds."""

DELETABLE: Final = frozenset(
    (
        *((DAEMON_SETS.kind, agent.name) for agent in AGENTS),
        *((DEVICE_CLASSES.kind, name) for name in DEVICE_CLASS_NAMES),
        *(
            (resource.kind, name)
            for resource in (SERVICES, SERVICE_MONITORS)
            for name in (EXPORTER, NODE_STATUS)
        ),
    )
)
"""Kind and name of what is deleted where its policy does not want it; RuntimeClasses have their own
rule.
"""

WRITTEN: Final = (*OPERANDS, NODES.kind, VALIDATION_PODS.kind, *POLICIES)
"""Every kind that this role writes to."""


def operand_content(live: views.Object) -> dict[str, Any]:
    """Return what an operand has besides its metadata."""
    match live:
        case Specified(spec=spec) | DaemonSet(spec=spec):
            return {"spec": spec}
        case ConfigMap(data=data):
            return {"data": data}
        case RuntimeClass(handler=handler):
            return {"handler": handler}
        case _:
            raise TypeError(f"a {type(live).__name__} is no operand")


def is_ours(live: views.Object) -> bool:
    """Return whether this role applied the object, by managedFields: labels may be forged."""
    return any(
        fields.manager == MANAGER and fields.operation == "Apply" and not fields.subresource
        for fields in live.metadata.managed_fields
    )


def is_of_gpu_operator(live: views.Object) -> bool:
    owners = {owner.kind for owner in live.metadata.owner_references}
    return bool(owners & _OF_GPU_OPERATOR) or _APPLIED_HASH in live.metadata.annotations


MAX_AGE: Final = 10.0
"""Seconds after which an informer must be verified before anything is deleted."""


class Informers(LeadingInformers):
    def __init__(self, kube: Kube, *, namespace: str, env: Env) -> None:
        super().__init__(kube, env=env)
        self.policies = self.add_each(POLICIES)
        self.gpu_clusters = self.add(GPU_CLUSTERS)
        self.rollouts = self.add(ROLLOUTS)
        self.nodes = self.add(NODES)
        self.daemon_sets = self.add(DAEMON_SETS, namespace=namespace)
        self.configs = self.add(CONFIGS, namespace=namespace)
        self.runtime_classes = self.add(RUNTIME_CLASSES)
        self.device_classes = self.add(DEVICE_CLASSES)
        self.services = self.add(SERVICES, namespace=namespace)
        self.service_monitors = self.add(SERVICE_MONITORS, namespace=namespace)
        self.watch_gpu_operator()
        self.operands: Mapping[str, Informer[Any]] = {
            DAEMON_SETS.kind: self.daemon_sets,
            CONFIGS.kind: self.configs,
            RUNTIME_CLASSES.kind: self.runtime_classes,
            DEVICE_CLASSES.kind: self.device_classes,
            SERVICES.kind: self.services,
            SERVICE_MONITORS.kind: self.service_monitors,
        }

    async def why_stale(self) -> str:
        """Verify old caches; return why some may be stale, empty if all are current."""
        old = [informer for informer in self.all() if informer.age > MAX_AGE]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(informer.verify_current()) for informer in old]
        return "; ".join(why for task in tasks if (why := task.result()))

    def on_change(
        self, handler: Callable[[views.Object | None, views.Object | None], None]
    ) -> Callable[[], None]:
        """Call `handler` for each change, until the returned function is called."""
        return join_subscriptions(*(each.cache.on_change(handler) for each in self.all()))
