"""The kinds that the server serves: its own, and those that CustomResourceDefinitions add.

A kind is data; what happens to its objects on a write is in `strategies`, for pods and what makes
them in `workloads`, for what makes kinds in `custom`. Must not know what is stored, nor what a
request is.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from libs.testing.apiserver.objects.shapes import MergeShape, builtin

if TYPE_CHECKING:
    from libs.testing.apiserver.schemas.schema import Schema

ALL = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
"""The verbs of an ordinary kind, as discovery has them."""

NAME_FIELDS = ("metadata.name", "metadata.namespace")
"""What every namespaced kind can be selected by."""


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
    """Those that are served, by their last name: `status`, `binding`."""
    selectable: tuple[str, ...] = ()
    """Paths that a fieldSelector may name."""
    shape: MergeShape
    columns: tuple[CustomColumn, ...] = ()
    """Of a custom kind; the server's own are known to the tables."""
    schema: "Schema | None" = None
    """Of a custom kind."""
    stored_as: str = ""
    """The apiVersion in which its objects are kept, where that is another than this one's."""
    generations: bool = False
    """Whether `metadata.generation` counts the changes of what is wanted."""
    put_creates: bool = False
    """Whether a PUT of what is not there creates it."""
    put_unfenced: bool = True
    """Whether a PUT may go without resourceVersion."""

    @property
    def api_version(self) -> str:
        """As an object's `apiVersion` says it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """As messages name it: `pods`, `daemonsets.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def custom(self) -> bool:
        """Whether a CustomResourceDefinition made it."""
        return self.schema is not None


class ResourceKinds:
    """What is served now."""

    def __init__(self) -> None:
        self._kinds = {_key(kind): kind for kind in _builtin()}

    def __iter__(self) -> Iterator[ResourceKind]:
        return iter(self._kinds.values())

    def by_path(self, group: str, version: str, plural: str) -> ResourceKind | None:
        """The kind that lives there."""
        return self._kinds.get((group, version, plural))

    def by_resource(self, group: str, plural: str) -> ResourceKind | None:
        """Any of the versions of a resource: they share their objects."""
        for kind in self._kinds.values():
            if kind.group == group and kind.plural == plural:
                return kind
        return None

    def has_version(self, group: str, version: str) -> bool:
        """Whether anything is served under this group and version."""
        return any(kind.group == group and kind.version == version for kind in self)

    def add(self, kind: ResourceKind) -> None:
        """Serve it from now on, instead of what was there."""
        self._kinds[_key(kind)] = kind

    def remove(self, group: str, plural: str) -> None:
        """Serve no version of it any more."""
        for key in [key for key in self._kinds if (key[0], key[2]) == (group, plural)]:
            del self._kinds[key]


def _key(kind: ResourceKind) -> tuple[str, str, str]:
    return (kind.group, kind.version, kind.plural)


def _own(
    kind: str,
    plural: str,
    *,
    group: str = "",
    short: tuple[str, ...] = (),
    namespaced: bool = True,
    categories: tuple[str, ...] = (),
    verbs: tuple[str, ...] = ALL,
    subresources: tuple[str, ...] = (),
    selectable: tuple[str, ...] = (),
    generations: bool = False,
    put_creates: bool = False,
    put_unfenced: bool = True,
) -> ResourceKind:
    return ResourceKind(
        group=group,
        plural=plural,
        singular=kind.lower(),
        kind=kind,
        list_kind=f"{kind}List",
        short_names=short,
        namespaced=namespaced,
        categories=categories,
        verbs=verbs,
        subresources=subresources,
        selectable=(NAME_FIELDS if namespaced else NAME_FIELDS[:1]) + selectable,
        shape=builtin(kind),
        generations=generations,
        put_creates=put_creates,
        put_unfenced=put_unfenced,
    )


_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
)
_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_RBAC = "rbac.authorization.k8s.io"
_STATUS = ("status",)
_SHOWN = ("all",)


def _builtin() -> Iterator[ResourceKind]:
    yield from _core()
    yield from _workloads()
    yield _own("Lease", "leases", group="coordination.k8s.io", put_creates=True, put_unfenced=False)
    yield _own(
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        group="policy",
        short=("pdb",),
        subresources=_STATUS,
        generations=True,
        put_unfenced=False,
    )
    yield _own(
        "RuntimeClass",
        "runtimeclasses",
        group="node.k8s.io",
        namespaced=False,
        put_creates=True,
        put_unfenced=False,
    )
    yield _own(
        "CustomResourceDefinition",
        "customresourcedefinitions",
        group="apiextensions.k8s.io",
        short=("crd", "crds"),
        namespaced=False,
        categories=("api-extensions",),
        subresources=_STATUS,
        generations=True,
        put_unfenced=False,
    )
    yield from _rbac()
    yield _own(
        "TokenReview",
        "tokenreviews",
        group="authentication.k8s.io",
        namespaced=False,
        verbs=("create",),
    )


def _core() -> Iterator[ResourceKind]:
    yield _own("ConfigMap", "configmaps", short=("cm",))
    yield _own("Event", "events", short=("ev",), selectable=_EVENT_FIELDS, put_creates=True)
    yield _own(
        "Namespace",
        "namespaces",
        short=("ns",),
        namespaced=False,
        verbs=tuple(verb for verb in ALL if verb != "deletecollection"),
        subresources=("finalize", "status"),
        selectable=("status.phase",),
    )
    yield _own(
        "Node",
        "nodes",
        short=("no",),
        namespaced=False,
        subresources=_STATUS,
        selectable=("spec.unschedulable",),
    )
    yield _own(
        "Pod",
        "pods",
        short=("po",),
        categories=_SHOWN,
        subresources=("binding", "eviction", "status"),
        selectable=_POD_FIELDS,
        generations=True,
    )
    yield _own("Secret", "secrets", selectable=("type",))
    yield _own("ServiceAccount", "serviceaccounts", short=("sa",))
    yield _own(
        "Service",
        "services",
        short=("svc",),
        categories=_SHOWN,
        subresources=_STATUS,
        selectable=("spec.clusterIP", "spec.type"),
        put_creates=True,
    )


def _workloads() -> Iterator[ResourceKind]:
    yield _own("ControllerRevision", "controllerrevisions", group="apps")
    for kind, plural, group, short, selectable in (
        ("DaemonSet", "daemonsets", "apps", ("ds",), ()),
        ("Deployment", "deployments", "apps", ("deploy",), ()),
        ("ReplicaSet", "replicasets", "apps", ("rs",), ("status.replicas",)),
        ("Job", "jobs", "batch", (), ("status.successful",)),
    ):
        yield _own(
            kind,
            plural,
            group=group,
            short=short,
            categories=_SHOWN,
            subresources=_STATUS,
            selectable=selectable,
            generations=True,
        )


def _rbac() -> Iterator[ResourceKind]:
    for kind, plural, namespaced in (
        ("ClusterRoleBinding", "clusterrolebindings", False),
        ("ClusterRole", "clusterroles", False),
        ("RoleBinding", "rolebindings", True),
        ("Role", "roles", True),
    ):
        yield _own(kind, plural, group=_RBAC, namespaced=namespaced, put_creates=True)
