"""Objects of a kind as a meta.k8s.io/v1 Table, as `kubectl get` prints it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from libs.kube.views import parse_time
from libs.testing.apiserver.kinds.kind import CustomColumn, ResourceKind

Object = Mapping[str, Any]
Cell = str | int | float | bool | None
CellReader = Callable[[Object, float], Cell]
"""Returns a cell from an object and the current time."""

META = "meta.k8s.io/v1"

_NONE = "<none>"


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    read: CellReader
    type: str = "string"
    format: str = ""
    priority: int = 0
    """1 for a column that only `-o wide` shows."""

    def definition(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": "",
            "priority": self.priority,
        }


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

    `include` is the request's `includeObject`: the part of its object that each row
    carries. Only the first event of a watch has headers.
    """
    own = _BUILT_IN.get(kind.resource, (_NAME, _AGE))
    columns = _custom_columns(kind.columns) if kind.custom else own
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


def _row_object(obj: Object, include: str) -> Object | None:
    if include in ("None", "Object"):
        return obj if include == "Object" else None
    return metadata_alone(obj)


def metadata_alone(obj: Object) -> dict[str, Any]:
    """Return an object as a PartialObjectMetadata."""
    metadata = obj.get("metadata", {})
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": metadata}


def metadata_list(metadata: Object, objects: Iterable[Object]) -> dict[str, Any]:
    """Return a list as a PartialObjectMetadataList with the list's own `metadata`."""
    items = [metadata_alone(each) for each in objects]
    kind = "PartialObjectMetadataList"
    return {"kind": kind, "apiVersion": META, "metadata": metadata, "items": items}


# Cells


def _value_at(obj: Any, *path: str) -> Any:
    """Return the value at this path, or None."""
    for name in path:
        if not isinstance(obj, Mapping):
            return None
        obj = obj.get(name)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return obj  # pyright: ignore[reportUnknownVariableType]


def _list_at(obj: Any, *path: str) -> Sequence[Any]:
    return _value_at(obj, *path) or ()


def _map_at(obj: Any, *path: str) -> Mapping[str, Any]:
    return _value_at(obj, *path) or {}


def _path(*path: str, default: Cell = "") -> CellReader:
    """Read the value at this path; `default` where it is empty."""
    return lambda obj, _now: _value_at(obj, *path) or default


def _count(name: str, field: str) -> TableColumn:
    return TableColumn(name, _path("status", field, default=0), "integer")


_MINUTE, _HOUR, _DAY, _YEAR = 60, 3_600, 86_400, 365 * 86_400
_SPANS = (
    # below this, the larger unit, and the smaller unit beside it (0: none)
    (2 * _MINUTE, 1, 0),
    (10 * _MINUTE, _MINUTE, 1),
    (3 * _HOUR, _MINUTE, 0),
    (8 * _HOUR, _HOUR, _MINUTE),
    (2 * _DAY, _HOUR, 0),
    (8 * _DAY, _DAY, _HOUR),
    (2 * _YEAR, _DAY, 0),
    (8 * _YEAR, _YEAR, _DAY),
    (float("inf"), _YEAR, 0),
)
_LETTERS = {1: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}


def since(timestamp: Any, now: float) -> str:
    """Format the time since a timestamp: `5m30s`, `3h5m`, `45d`; coarser the longer it is.

    One second in the future counts as now, because clocks differ.
    """
    if not timestamp:
        return "<unknown>"
    seconds = int(now - parse_time(timestamp))
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    unit, smaller = next((unit, smaller) for limit, unit, smaller in _SPANS if seconds < limit)
    rest = seconds % unit // smaller if smaller else 0
    words = f"{seconds // unit}{_LETTERS[unit]}"
    return f"{words}{rest}{_LETTERS[smaller]}" if rest else words


def _node_status(node: Object, _now: float) -> Cell:
    conditions = _list_at(node, "status", "conditions")
    ready = next((each.get("status") for each in conditions if each["type"] == "Ready"), None)
    words = {None: "Unknown", "True": "Ready"}.get(ready, "NotReady")
    return f"{words},SchedulingDisabled" if _value_at(node, "spec", "unschedulable") else words


def _roles(node: Object, _now: float) -> Cell:
    prefix, labels = "node-role.kubernetes.io/", _map_at(node, "metadata", "labels")
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)}
    return ",".join(sorted(roles - {""})) or _NONE


def _ready(pod: Object, _now: float) -> Cell:
    ready = sum(bool(each.get("ready")) for each in _list_at(pod, "status", "containerStatuses"))
    return f"{ready}/{len(_list_at(pod, 'spec', 'containers'))}"


def _pod_status(pod: Object, _now: float) -> Cell:
    """Return the state of the first container that is neither running nor completed.

    Init containers come first; a deletion hides all of them.
    """
    phase = _value_at(pod, "status", "phase") or ""
    if _value_at(pod, "metadata", "deletionTimestamp") and phase not in ("Succeeded", "Failed"):
        return "Terminating"
    total = len(_list_at(pod, "spec", "initContainers"))
    for index, container in enumerate(_list_at(pod, "status", "initContainerStatuses")):
        if _value_at(container, "state", "terminated", "exitCode") != 0:
            reason = _reason(container)
            shown = reason if reason not in ("", "PodInitializing") else f"{index}/{total}"
            return f"Init:{shown}"
    reasons = [_reason(each) for each in _list_at(pod, "status", "containerStatuses")]
    return next(filter(None, reasons), _value_at(pod, "status", "reason") or phase)


def _reason(container: Object) -> str:
    waiting = _value_at(container, "state", "waiting", "reason")
    terminated = _map_at(container, "state", "terminated")
    default = f"ExitCode:{terminated.get('exitCode', 0)}" if terminated else ""
    return waiting or terminated.get("reason") or default


def _restarts(pod: Object, _now: float) -> Cell:
    names = ("initContainerStatuses", "containerStatuses")
    statuses = [each for name in names for each in _list_at(pod, "status", name)]
    return str(sum(each.get("restartCount", 0) for each in statuses))


def _node_selector(daemon_set: Object, _now: float) -> Cell:
    selector = _map_at(daemon_set, "spec", "template", "spec", "nodeSelector")
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or _NONE


_NAME = TableColumn("Name", _path("metadata", "name"), format="name")
_AGE = TableColumn(
    "Age", lambda obj, now: since(_value_at(obj, "metadata", "creationTimestamp"), now)
)
_BUILT_IN: Mapping[str, Sequence[TableColumn]] = {
    "daemonsets.apps": (
        _NAME,
        _count("Desired", "desiredNumberScheduled"),
        _count("Current", "currentNumberScheduled"),
        _count("Ready", "numberReady"),
        _count("Up-to-date", "updatedNumberScheduled"),
        _count("Available", "numberAvailable"),
        TableColumn("Node Selector", _node_selector),
        _AGE,
    ),
    "nodes": (
        _NAME,
        TableColumn("Status", _node_status),
        TableColumn("Roles", _roles),
        _AGE,
        TableColumn("Version", _path("status", "nodeInfo", "kubeletVersion")),
    ),
    "pods": (
        _NAME,
        TableColumn("Ready", _ready),
        TableColumn("Status", _pod_status),
        TableColumn("Restarts", _restarts),
        _AGE,
        TableColumn("Node", _path("spec", "nodeName", default=_NONE), priority=1),
    ),
}
"""Every other built-in kind shows name and age."""


@lru_cache(maxsize=256)
def _custom_columns(additional: tuple[CustomColumn, ...]) -> Sequence[TableColumn]:
    """Return the columns of a custom kind: its own, or name and age without any."""
    age = CustomColumn(name="Age", type="date", json_path=".metadata.creationTimestamp")
    return (_NAME, *(_column(each) for each in additional or (age,)))


def _column(custom: CustomColumn) -> TableColumn:
    """Read the value at a path of plain fields, the only JSON paths that are simulated."""
    names = custom.json_path.removeprefix(".").split(".")

    def read(obj: Object, now: float) -> Cell:
        return _custom_cell(_value_at(obj, *names), custom.type, now)

    return TableColumn(custom.name, read, custom.type, custom.format, custom.priority)


def _custom_cell(value: Any, type: str, now: float) -> Cell:
    """Return None for a value that is not of the column's type."""
    match type:
        case "string" if value is not None:
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()
        case "boolean" if isinstance(value, bool):
            return value
        case "integer" | "number" if isinstance(value, int | float):
            return int(value) if type == "integer" else value
        case "date" if isinstance(value, str):
            return since(value, now)
        case _:
            return None
