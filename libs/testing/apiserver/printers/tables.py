"""Objects of a kind as a meta.k8s.io/v1 Table."""

from collections.abc import Mapping, Sequence
from typing import Any

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.printers import custom
from libs.testing.apiserver.printers.columns import AGE, NAME, Object, TableColumn
from libs.testing.apiserver.printers.nodes import NODE
from libs.testing.apiserver.printers.pods import DAEMON_SET, POD
from libs.testing.apiserver.status import StatusError

META = "meta.k8s.io/v1"

_COLUMNS: Mapping[str, Sequence[TableColumn]] = {
    "daemonsets.apps": DAEMON_SET,
    "nodes": NODE,
    "pods": POD,
}
"""Every other built-in kind shows name and age."""


def table(
    kind: ResourceKind,
    objects: Sequence[Object],
    *,
    now: float,
    include: str,
    metadata: Object | None = None,
    headers: bool = True,
) -> dict[str, Any]:
    """Return the table of a list with its `metadata`, of one object, or of a watch event.

    `include` is the request's `includeObject`: what of its object each row carries. Only the first
    event of a watch has headers.
    """
    if include not in ("", "Metadata", "Object", "None"):
        raise StatusError(
            400,
            "BadRequest",
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
            "must be 'Metadata', 'Object', 'None', or empty",
        )
    own = _COLUMNS.get(kind.resource, (NAME, AGE))
    columns = custom.columns(kind.columns) if kind.custom else own
    if metadata is None:
        metadata = {"resourceVersion": objects[0]["metadata"].get("resourceVersion", "")}
    return {
        "kind": "Table",
        "apiVersion": META,
        "metadata": metadata,
        "columnDefinitions": [each.definition() for each in columns] if headers else None,
        "rows": [
            {
                "cells": [column.read(each, now) for column in columns],
                "object": _row_object(each, include),
            }
            for each in objects
        ],
    }


def _row_object(thing: Object, include: str) -> Object | None:
    if include == "None":
        return None
    if include == "Object":
        return thing
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": META,
        "metadata": thing.get("metadata", {}),
    }
