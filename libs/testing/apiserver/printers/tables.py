"""A kind's objects as a meta.k8s.io/v1 Table: what `kubectl get` prints.

Which columns a kind has is in `libs.testing.apiserver.printers`. Must know no requests.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.printers import custom, pods, simple_kinds, workloads
from libs.testing.apiserver.printers.columns import PLAIN, Object, TableColumn
from libs.testing.apiserver.printers.events import EVENT
from libs.testing.apiserver.printers.json_paths import InvalidPath
from libs.testing.apiserver.printers.nodes import NODE
from libs.testing.apiserver.printers.services import SERVICE
from libs.testing.apiserver.status import StatusError

META = "meta.k8s.io/v1"

COLUMNS: Mapping[tuple[str, str], Sequence[TableColumn]] = {
    ("", "configmaps"): simple_kinds.CONFIG_MAP,
    ("", "events"): EVENT,
    ("", "namespaces"): simple_kinds.NAMESPACE,
    ("", "nodes"): NODE,
    ("", "pods"): pods.POD,
    ("", "secrets"): simple_kinds.SECRET,
    ("", "serviceaccounts"): simple_kinds.SERVICE_ACCOUNT,
    ("", "services"): SERVICE,
    ("apiextensions.k8s.io", "customresourcedefinitions"): simple_kinds.CUSTOM_RESOURCE,
    ("apps", "controllerrevisions"): workloads.CONTROLLER_REVISION,
    ("apps", "daemonsets"): workloads.DAEMON_SET,
    ("apps", "deployments"): workloads.DEPLOYMENT,
    ("apps", "replicasets"): workloads.REPLICA_SET,
    ("batch", "jobs"): workloads.JOB,
    ("coordination.k8s.io", "leases"): simple_kinds.LEASE,
    ("node.k8s.io", "runtimeclasses"): simple_kinds.RUNTIME_CLASS,
    ("policy", "poddisruptionbudgets"): simple_kinds.BUDGET,
    ("rbac.authorization.k8s.io", "clusterrolebindings"): simple_kinds.ROLE_BINDING,
    ("rbac.authorization.k8s.io", "rolebindings"): simple_kinds.ROLE_BINDING,
}
"""Of the server's own kinds; those that are not here show name and creation."""


def table(
    kind: ResourceKind,
    objects: Sequence[Object],
    *,
    now: float,
    include: str,
    metadata: Object | None = None,
    headers: bool = True,
) -> dict[str, Any]:
    """Of a list with its `metadata`, of one object, or of a watch event's.

    `include` is the request's includeObject: what of each object its row carries. A watch sends
    the headers once.
    """
    if include not in ("", "Metadata", "Object", "None"):
        raise _unconvertible(
            f'includeObject: Invalid value: "{include}": must be '
            "'Metadata', 'Object', 'None', or empty"
        )
    columns = _columns(kind)
    if metadata is None:
        metadata = {"resourceVersion": objects[0]["metadata"].get("resourceVersion", "")}
    return {
        "kind": "Table",
        "apiVersion": META,
        "metadata": metadata,
        "columnDefinitions": [each.definition() for each in columns] if headers else None,
        "rows": [_row(kind, columns, each, now=now, include=include) for each in objects],
    }


def partial(thing: Object) -> dict[str, Any]:
    """Its metadata alone, as an object."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": META,
        "metadata": thing.get("metadata", {}),
    }


def _columns(kind: ResourceKind) -> Sequence[TableColumn]:
    if not kind.custom:
        return COLUMNS.get((kind.group, kind.plural), PLAIN)
    try:
        return custom.columns(kind.columns)
    except InvalidPath as error:
        raise _unconvertible(str(error)) from error


def _row(
    kind: ResourceKind, columns: Sequence[TableColumn], thing: Object, *, now: float, include: str
) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": [column.read(thing, now) for column in columns]}
    if kind.resource == "pods" and (conditions := pods.conditions(thing)):
        row["conditions"] = conditions
    row["object"] = _carried(thing, include)
    return row


def _carried(thing: Object, include: str) -> Object | None:
    if include == "None":
        return None
    return thing if include == "Object" else partial(thing)


def _unconvertible(why: str) -> StatusError:
    return StatusError(400, "BadRequest", f"Unable to convert to Table as requested: {why}")
