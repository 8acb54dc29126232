"""Kinds of objects: their paths and views. Custom kinds are described by their owners."""

from collections.abc import Iterable, Mapping
from typing import Any, Generic, Protocol, TypedDict, TypeVar, cast

import msgspec

from libs.kube import views
from libs.kube.views.lean import Unmanaged

V = TypeVar("V", bound=views.Object)
W = TypeVar("W", bound=views.Object)


class Selection(TypedDict, total=False):
    """Restricts a list or watch by namespace, labels and fields."""

    namespace: str
    labels: str
    fields: str


class Resource(msgspec.Struct, Generic[V], frozen=True, kw_only=True):
    """A kind of object, read as `view`."""

    group: str = ""
    version: str = "v1"
    plural: str
    kind: str
    namespaced: bool = True
    creatable: bool = True
    """False for kinds that an apply must never create."""
    optional: bool = False
    """Of other software, or of newer servers: the server may lack the kind."""
    metadata_only: bool = False
    """Lists and watches transfer only the metadata, which is all that the view reads."""
    view: type[V]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_custom(self) -> bool:
        """Whether the kind needs a CustomResourceDefinition."""
        return "." in self.group and not self.group.endswith(".k8s.io")

    @property
    def may_be_absent(self) -> bool:
        """Whether a server may not serve the kind."""
        return self.optional or self.is_custom

    def viewed_as(self, view: type[W]) -> "Resource[W]":
        """Return the kind for a reader of other fields."""
        return cast("Resource[W]", msgspec.structs.replace(self, view=view))

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of an object, or of the collection without a name."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace:
            root = f"{root}/namespaces/{namespace}"
        return "/".join(part for part in (root, self.plural, name, subresource) if part)


NODES = Resource(plural="nodes", kind="Node", namespaced=False, creatable=False, view=views.Node)
PODS = Resource(plural="pods", kind="Pod", view=views.Pod)
NAMESPACES = Resource(plural="namespaces", kind="Namespace", namespaced=False, view=views.Object)
CONFIG_MAPS = Resource(plural="configmaps", kind="ConfigMap", view=views.Object)
SERVICE_ACCOUNTS = Resource(plural="serviceaccounts", kind="ServiceAccount", view=views.Object)
EVENTS = Resource(plural="events", kind="Event", view=views.Object)
LEASES = Resource(group="coordination.k8s.io", plural="leases", kind="Lease", view=views.Lease)
DAEMON_SETS = Resource(group="apps", plural="daemonsets", kind="DaemonSet", view=views.DaemonSet)
CONTROLLER_REVISIONS = Resource(
    group="apps",
    plural="controllerrevisions",
    kind="ControllerRevision",
    view=views.ControllerRevision,
)
POD_DISRUPTION_BUDGETS = Resource(
    group="policy", plural="poddisruptionbudgets", kind="PodDisruptionBudget", view=views.Object
)
RUNTIME_CLASSES = Resource(
    group="node.k8s.io",
    plural="runtimeclasses",
    kind="RuntimeClass",
    namespaced=False,
    view=views.Object,
)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    view=views.CustomResourceDefinition,
)


class CustomKind(Protocol):
    """The coordinates of a custom kind."""

    @property
    def name(self) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def plural(self) -> str: ...


class CustomObject(Unmanaged, frozen=True, kw_only=True):
    """A custom object without its managed fields."""

    spec: Any = None


def custom_resource(kind: CustomKind, view: type[V], *, optional: bool = False) -> Resource[V]:
    return Resource(
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        kind=kind.name,
        namespaced=False,
        optional=optional,
        view=view,
    )


def custom_resources(kinds: Iterable[CustomKind], view: type[V]) -> Mapping[str, Resource[V]]:
    return {kind.name: custom_resource(kind, view) for kind in kinds}
