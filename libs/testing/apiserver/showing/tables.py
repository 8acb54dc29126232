"""A kind's objects as a meta.k8s.io/v1 Table: what `kubectl get` prints.

Which columns a kind has is in `libs.testing.apiserver.showing.printing`. Must know no requests.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from libs.testing.apiserver.kinds import Kind
from libs.testing.apiserver.showing.printing import custom, pods, small, workloads
from libs.testing.apiserver.showing.printing.columns import PLAIN, Column, Object
from libs.testing.apiserver.showing.printing.events import EVENT
from libs.testing.apiserver.showing.printing.nodes import NODE
from libs.testing.apiserver.showing.printing.paths import PathRefused
from libs.testing.apiserver.showing.printing.services import SERVICE
from libs.testing.apiserver.status import Refused

META = "meta.k8s.io/v1"

COLUMNS: Mapping[tuple[str, str], Sequence[Column]] = {
    ("", "configmaps"): small.CONFIG_MAP,
    ("", "events"): EVENT,
    ("", "namespaces"): small.NAMESPACE,
    ("", "nodes"): NODE,
    ("", "pods"): pods.POD,
    ("", "secrets"): small.SECRET,
    ("", "serviceaccounts"): small.SERVICE_ACCOUNT,
    ("", "services"): SERVICE,
    ("apiextensions.k8s.io", "customresourcedefinitions"): small.CUSTOM_RESOURCE,
    ("apps", "controllerrevisions"): workloads.CONTROLLER_REVISION,
    ("apps", "daemonsets"): workloads.DAEMON_SET,
    ("apps", "deployments"): workloads.DEPLOYMENT,
    ("apps", "replicasets"): workloads.REPLICA_SET,
    ("batch", "jobs"): workloads.JOB,
    ("coordination.k8s.io", "leases"): small.LEASE,
    ("node.k8s.io", "runtimeclasses"): small.RUNTIME_CLASS,
    ("policy", "poddisruptionbudgets"): small.BUDGET,
    ("rbac.authorization.k8s.io", "clusterrolebindings"): small.ROLE_BINDING,
    ("rbac.authorization.k8s.io", "rolebindings"): small.ROLE_BINDING,
}
"""Of the server's own kinds; those that are not here show name and creation."""


def table(
    kind: Kind,
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


def _columns(kind: Kind) -> Sequence[Column]:
    if not kind.custom:
        return COLUMNS.get((kind.group, kind.plural), PLAIN)
    try:
        return custom.columns(kind.columns)
    except PathRefused as error:
        raise _unconvertible(str(error)) from error


def _row(
    kind: Kind, columns: Sequence[Column], thing: Object, *, now: float, include: str
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


def _unconvertible(why: str) -> Refused:
    return Refused(400, "BadRequest", f"Unable to convert to Table as requested: {why}")
