"""The kinds that the server serves: its own, and those that CustomResourceDefinitions add.

A kind is data; what happens to its objects on a write is in `strategies` and `workloads`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from libs.testing.apiserver.objects.shapes import MergeShape, builtin

if TYPE_CHECKING:
    from libs.testing.apiserver.kinds.schema import Schema

ALL = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
"""The verbs of an ordinary kind, in discovery's order."""

NAME_FIELDS = ("metadata.name", "metadata.namespace")
"""The field selectors of every namespaced kind."""


class CustomColumn(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One of a custom kind's `additionalPrinterColumns`."""

    name: str
    type: str
    json_path: str
    format: str = ""
    description: str = ""
    priority: int = 0


class ResourceKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of object in one version."""

    group: str = ""
    version: str = "v1"
    plural: str
    singular: str
    kind: str
    list_kind: str
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL
    subresources: tuple[str, ...] = ()
    """The served subresources: `status`, `binding`."""
    selectable: tuple[str, ...] = ()
    """Paths that a fieldSelector may name."""
    shape: MergeShape
    columns: tuple[CustomColumn, ...] = ()
    """The printer columns of a custom kind."""
    schema: "Schema | None" = None
    """The schema of a custom kind."""
    generations: bool = False
    """Whether `metadata.generation` counts changes of the spec."""
    put_creates: bool = False
    """Whether a PUT creates a missing object."""
    put_without_revision: bool = True
    """Whether a PUT may omit resourceVersion."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The name in messages: `pods`, `daemonsets.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def custom(self) -> bool:
        return self.schema is not None


class ResourceKinds:
    """The kinds that are served now."""

    def __init__(self) -> None:
        self._kinds = {_key(kind): kind for kind in _builtin()}

    def __iter__(self) -> Iterator[ResourceKind]:
        return iter(self._kinds.values())

    def by_path(self, group: str, version: str, plural: str) -> ResourceKind | None:
        return self._kinds.get((group, version, plural))

    def by_resource(self, group: str, plural: str) -> ResourceKind | None:
        found = (kind for kind in self if (kind.group, kind.plural) == (group, plural))
        return next(found, None)

    def has_version(self, group: str, version: str) -> bool:
        return any(kind.group == group and kind.version == version for kind in self)

    def add(self, kind: ResourceKind) -> None:
        self._kinds[_key(kind)] = kind

    def remove(self, kind: ResourceKind) -> None:
        del self._kinds[_key(kind)]


def _key(kind: ResourceKind) -> tuple[str, str, str]:
    return (kind.group, kind.version, kind.plural)


def _own(
    kind: str,
    plural: str,
    *,
    group: str = "",
    namespaced: bool = True,
    selectable: tuple[str, ...] = (),
    shape: str = "",
    **more: Any,
) -> ResourceKind:
    return ResourceKind(
        group=group,
        plural=plural,
        singular=kind.lower(),
        kind=kind,
        list_kind=f"{kind}List",
        namespaced=namespaced,
        selectable=(NAME_FIELDS if namespaced else NAME_FIELDS[:1]) + selectable,
        shape=builtin(shape or kind),
        **more,
    )


_POD_FIELDS = (
    "spec.nodeName",
    "status.phase",
)
_EVENT_FIELDS = (
    *("involvedObject.kind", "involvedObject.namespace", "involvedObject.name"),
    *("involvedObject.uid", "reason", "reportingComponent", "source", "type"),
)
_RBAC = "rbac.authorization.k8s.io"
_STATUS = ("status",)
_FENCED_PUT: dict[str, Any] = {"put_creates": True, "put_without_revision": False}
_WORKLOAD: dict[str, Any] = {"categories": ("all",), "subresources": _STATUS, "generations": True}


def _builtin() -> Iterator[ResourceKind]:
    yield _own("ConfigMap", "configmaps", short_names=("cm",))
    yield _own("Event", "events", short_names=("ev",), selectable=_EVENT_FIELDS, put_creates=True)
    yield _own(
        "Namespace",
        "namespaces",
        short_names=("ns",),
        namespaced=False,
        verbs=tuple(verb for verb in ALL if verb != "deletecollection"),
        subresources=_STATUS,
        selectable=("status.phase",),
    )
    yield _own(
        "Node",
        "nodes",
        short_names=("no",),
        namespaced=False,
        subresources=_STATUS,
        selectable=("spec.unschedulable",),
    )
    pods: dict[str, Any] = {**_WORKLOAD, "subresources": ("binding", "eviction", "status")}
    yield _own("Pod", "pods", short_names=("po",), selectable=_POD_FIELDS, **pods)
    yield _own("Secret", "secrets", selectable=("type",))
    yield _own(
        "Service",
        "services",
        short_names=("svc",),
        categories=("all",),
        subresources=_STATUS,
    )
    yield _own("ServiceAccount", "serviceaccounts", short_names=("sa",))
    yield _own("ControllerRevision", "controllerrevisions", group="apps")
    yield _own("DaemonSet", "daemonsets", group="apps", short_names=("ds",), **_WORKLOAD)
    yield _own("ReplicaSet", "replicasets", group="apps", short_names=("rs",), **_WORKLOAD)
    yield _own("Job", "jobs", group="batch", **_WORKLOAD)
    yield _own("Lease", "leases", group="coordination.k8s.io", **_FENCED_PUT)
    yield _own(
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        group="policy",
        short_names=("pdb",),
        subresources=_STATUS,
        generations=True,
        put_without_revision=False,
    )
    yield _own(
        "ResourceClaim",
        "resourceclaims",
        group="resource.k8s.io",
        shape="DeviceResourceClaim",  # containers have a structure of the kind's name
        subresources=_STATUS,
    )
    yield _own(
        "ResourceSlice",
        "resourceslices",
        group="resource.k8s.io",
        namespaced=False,
        selectable=("spec.nodeName", "spec.driver"),
        generations=True,
    )
    yield _own(
        "DeviceClass",
        "deviceclasses",
        group="resource.k8s.io",
        namespaced=False,
        generations=True,
    )
    yield _own(
        "RuntimeClass", "runtimeclasses", group="node.k8s.io", namespaced=False, **_FENCED_PUT
    )
    for kind, plural in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    ):
        # They are stored, and refuse nothing here.
        yield _own(
            kind,
            plural,
            group="admissionregistration.k8s.io",
            namespaced=False,
            generations=True,
            put_without_revision=False,
        )
    yield _own(
        "CustomResourceDefinition",
        "customresourcedefinitions",
        group="apiextensions.k8s.io",
        short_names=("crd", "crds"),
        namespaced=False,
        categories=("api-extensions",),
        subresources=_STATUS,
        generations=True,
        put_without_revision=False,
    )
    for kind, plural, namespaced in (
        ("ClusterRoleBinding", "clusterrolebindings", False),
        ("ClusterRole", "clusterroles", False),
        ("RoleBinding", "rolebindings", True),
        ("Role", "roles", True),
    ):
        yield _own(kind, plural, group=_RBAC, namespaced=namespaced, put_creates=True)
