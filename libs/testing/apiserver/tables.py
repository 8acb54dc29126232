"""Columns of a table, and the cells that many kinds share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from libs.kube.views import parse_time
from libs.testing.apiserver.kinds.kind import CustomColumn, ResourceKind
from libs.testing.apiserver.status import StatusError

Object = Mapping[str, Any]
Cell = str | int | float | bool | None
CellReader = Callable[[Object, float], Cell]
"""Returns a cell from an object and the current time."""

NONE = "<none>"
UNKNOWN = "<unknown>"


@dataclass(frozen=True, kw_only=True, slots=True)
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


def column(name: str, read: CellReader, type: str = "string") -> TableColumn:
    return TableColumn(name=name, read=read, type=type)


def wide(name: str, read: CellReader) -> TableColumn:
    return TableColumn(name=name, read=read, priority=1)


def at(*path: str, default: Cell = "") -> CellReader:
    """Read the value at this path; `default` where it is empty."""

    def read(thing: Object, _now: float) -> Cell:
        return value_at(thing, *path) or default

    return read


def count(*path: str) -> CellReader:
    return at(*path, default=0)


def value_at(thing: Any, *path: str) -> Any:
    """Return the value at this path, or None."""
    for name in path:
        if not isinstance(thing, Mapping):
            return None
        thing = thing.get(name)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return thing  # pyright: ignore[reportUnknownVariableType]


def list_at(thing: Any, *path: str) -> Sequence[Any]:
    return value_at(thing, *path) or ()


def map_at(thing: Any, *path: str) -> Mapping[str, Any]:
    return value_at(thing, *path) or {}


def true_condition(thing: Object, type: str) -> bool:
    """Return whether the first condition of this type is True."""
    for condition in list_at(thing, "status", "conditions"):
        if condition.get("type") == type:
            return condition.get("status") == "True"
    return False


def _age(thing: Object, now: float) -> Cell:
    return since(value_at(thing, "metadata", "creationTimestamp"), now)


NAME = TableColumn(name="Name", read=at("metadata", "name"), format="name")
AGE = column("Age", _age)


MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
YEAR = 365 * DAY

_SPANS = (
    # below this, the larger unit, and the smaller unit beside it (0: none)
    (2 * MINUTE, 1, 0),
    (10 * MINUTE, MINUTE, 1),
    (3 * HOUR, MINUTE, 0),
    (8 * HOUR, HOUR, MINUTE),
    (2 * DAY, HOUR, 0),
    (8 * DAY, DAY, HOUR),
    (2 * YEAR, DAY, 0),
    (8 * YEAR, YEAR, DAY),
)
_LETTERS = {1: "s", MINUTE: "m", HOUR: "h", DAY: "d", YEAR: "y"}


def duration(seconds: float) -> str:
    """Format a duration; one second in the future counts as now, because clocks differ."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    for limit, unit, smaller in _SPANS:
        if whole < limit:
            return _in_units(whole, unit, smaller)
    return _in_units(whole, YEAR, 0)


def _in_units(seconds: int, unit: int, smaller: int) -> str:
    words = f"{seconds // unit}{_LETTERS[unit]}"
    rest = seconds % unit // smaller if smaller else 0
    return f"{words}{rest}{_LETTERS[smaller]}" if rest else words


def since(timestamp: Any, now: float) -> str:
    """Format the time since a timestamp; `<unknown>` without one."""
    return duration(now - parse_time(timestamp)) if timestamp else "<unknown>"


_ROLE_PREFIX = "node-role.kubernetes.io/"


def _node_status(node: Object, _now: float) -> Cell:
    known = any(each["type"] == "Ready" for each in list_at(node, "status", "conditions"))
    words = "NotReady" if known else "Unknown"
    words = "Ready" if true_condition(node, "Ready") else words
    return f"{words},SchedulingDisabled" if value_at(node, "spec", "unschedulable") else words


def _roles(node: Object, _now: float) -> Cell:
    labels = map_at(node, "metadata", "labels")
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return ",".join(sorted(roles - {""})) or NONE


def _internal_ip(node: Object, _now: float) -> Cell:
    addresses = list_at(node, "status", "addresses")
    return next((each["address"] for each in addresses if each["type"] == "InternalIP"), NONE)


NODE = (
    NAME,
    column("Status", _node_status),
    column("Roles", _roles),
    AGE,
    column("Version", at("status", "nodeInfo", "kubeletVersion")),
    wide("Internal-IP", _internal_ip),
    wide("OS-Image", at("status", "nodeInfo", "osImage", default=UNKNOWN)),
    wide("Kernel-Version", at("status", "nodeInfo", "kernelVersion", default=UNKNOWN)),
    wide("Container-Runtime", at("status", "nodeInfo", "containerRuntimeVersion", default=UNKNOWN)),
)


def _ready(pod: Object, _now: float) -> Cell:
    ready = sum(bool(each.get("ready")) for each in list_at(pod, "status", "containerStatuses"))
    return f"{ready}/{len(list_at(pod, 'spec', 'containers'))}"


def _pod_status(pod: Object, _now: float) -> Cell:
    """Return the state of the first container that is neither running nor completed.

    Init containers come first; a deletion hides all of them.
    """
    phase = value_at(pod, "status", "phase") or ""
    if value_at(pod, "metadata", "deletionTimestamp") and phase not in ("Succeeded", "Failed"):
        return "Terminating"
    total = len(list_at(pod, "spec", "initContainers"))
    for index, container in enumerate(list_at(pod, "status", "initContainerStatuses")):
        if value_at(container, "state", "terminated", "exitCode") != 0:
            reason = _reason(container)
            shown = reason if reason not in ("", "PodInitializing") else f"{index}/{total}"
            return f"Init:{shown}"
    reasons = [_reason(each) for each in list_at(pod, "status", "containerStatuses")]
    return next(filter(None, reasons), value_at(pod, "status", "reason") or phase)


def _reason(container: Object) -> str:
    waiting = value_at(container, "state", "waiting", "reason")
    terminated = map_at(container, "state", "terminated")
    default = f"ExitCode:{terminated.get('exitCode', 0)}" if terminated else ""
    return waiting or terminated.get("reason") or default


def _restarts(pod: Object, _now: float) -> Cell:
    names = ("initContainerStatuses", "containerStatuses")
    return str(
        sum(each.get("restartCount", 0) for name in names for each in list_at(pod, "status", name))
    )


def _address(pod: Object, _now: float) -> Cell:
    addresses = list_at(pod, "status", "podIPs")
    return (addresses[0].get("ip") if addresses else "") or NONE


def _node_selector(daemon_set: Object, _now: float) -> Cell:
    selector = map_at(daemon_set, "spec", "template", "spec", "nodeSelector")
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or NONE


POD = (
    NAME,
    column("Ready", _ready),
    column("Status", _pod_status),
    column("Restarts", _restarts),
    AGE,
    wide("IP", _address),
    wide("Node", at("spec", "nodeName", default=NONE)),
)
DAEMON_SET = (
    NAME,
    column("Desired", count("status", "desiredNumberScheduled"), "integer"),
    column("Current", count("status", "currentNumberScheduled"), "integer"),
    column("Ready", count("status", "numberReady"), "integer"),
    column("Up-to-date", count("status", "updatedNumberScheduled"), "integer"),
    column("Available", count("status", "numberAvailable"), "integer"),
    column("Node Selector", _node_selector),
    AGE,
)


_AGE = CustomColumn(name="Age", type="date", json_path=".metadata.creationTimestamp")


@lru_cache(maxsize=256)
def _custom_columns(additional: tuple[CustomColumn, ...]) -> Sequence[TableColumn]:
    return (NAME, *(_column(each) for each in additional or (_AGE,)))


def _column(custom: CustomColumn) -> TableColumn:
    return TableColumn(
        name=custom.name,
        read=_reader(custom.json_path, custom.type),
        type=custom.type,
        format=custom.format,
        priority=custom.priority,
    )


def _reader(json_path: str, type: str) -> CellReader:
    """Read the value at a path of plain fields, the only JSON paths that are simulated."""
    names = json_path.removeprefix(".").split(".")

    def read(thing: Object, now: float) -> Cell:
        return _cell(value_at(thing, *names), type, now)

    return read


def _cell(value: Any, type: str, now: float) -> Cell:
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
