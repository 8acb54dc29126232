"""Columns of a table, and the cells that many kinds share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from libs.testing.apiserver.printers.durations import since

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
