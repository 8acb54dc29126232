"""The kinds that the server serves: its own, and those that CustomResourceDefinitions add.

A kind is data; what happens to its objects on a write is in `strategies` and `workloads`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

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
    """Those that are served: `status`, `binding`."""
    selectable: tuple[str, ...] = ()
    """Paths that a fieldSelector may name."""
    shape: MergeShape
    columns: tuple[CustomColumn, ...] = ()
    """Of a custom kind."""
    schema: "Schema | None" = None
    """Of a custom kind."""
    generations: bool = False
    """Whether `metadata.generation` counts changes of the spec."""
    put_creates: bool = False
    """Whether a PUT creates a missing object."""
    put_unfenced: bool = True
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


def _workloads() -> Iterator[ResourceKind]:
    yield _own("ControllerRevision", "controllerrevisions", group="apps")
    for kind, plural, group, short, selectable in (
        ("DaemonSet", "daemonsets", "apps", ("ds",), ()),
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
