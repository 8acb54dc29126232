"""The words in which a kind's table is written: a column, and the cells that many kinds share.

Must know no kind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from libs.testing.apiserver.printers.durations import since

Object = Mapping[str, Any]
Cell = str | int | float | bool | None
CellReader = Callable[[Object, float], Cell]
"""A cell of an object, now."""

NONE = "<none>"
UNKNOWN = "<unknown>"


@dataclass(frozen=True, kw_only=True, slots=True)
class TableColumn:
    """One column; a `wide` one is shown to those who ask for more."""

    name: str
    read: CellReader
    type: str = "string"
    format: str = ""
    priority: int = 0

    def definition(self) -> dict[str, Any]:
        """As a Table declares it. No client of a table reads the description."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": "",
            "priority": self.priority,
        }


def column(name: str, read: CellReader, type: str = "string") -> TableColumn:
    """One that is always shown."""
    return TableColumn(name=name, read=read, type=type)


def wide(name: str, read: CellReader, type: str = "string") -> TableColumn:
    """One for `-o wide`."""
    return TableColumn(name=name, read=read, type=type, priority=1)


def at(*path: str, default: Cell = "") -> CellReader:
    """What stands at this path; an empty value is as good as none."""

    def read(thing: Object, _now: float) -> Cell:
        return value_at(thing, *path) or default

    return read


def count(*path: str) -> CellReader:
    """A number, 0 where there is none."""
    return at(*path, default=0)


def size(*path: str) -> CellReader:
    """How many entries stand at this path."""

    def read(thing: Object, _now: float) -> Cell:
        return len(value_at(thing, *path) or ())

    return read


def age_of(*path: str) -> CellReader:
    """How long ago the time at this path was."""

    def read(thing: Object, now: float) -> Cell:
        return since(value_at(thing, *path), now)

    return read


def value_at(thing: Any, *path: str) -> Any:
    """What stands at this path, or None."""
    for name in path:
        if not isinstance(thing, Mapping):
            return None
        thing = thing.get(name)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return thing  # pyright: ignore[reportUnknownVariableType]


def list_at(thing: Any, *path: str) -> Sequence[Any]:
    """The list at this path."""
    return value_at(thing, *path) or ()


def map_at(thing: Any, *path: str) -> Mapping[str, Any]:
    """The map at this path."""
    return value_at(thing, *path) or {}


def true_condition(thing: Object, type: str) -> bool:
    """Whether the first condition of this type in its status says True."""
    for condition in list_at(thing, "status", "conditions"):
        if condition.get("type") == type:
            return condition.get("status") == "True"
    return False


def labels_text(thing: Any, *path: str) -> str:
    """The map at this path, as a selector is written."""
    return ",".join(f"{key}={value}" for key, value in sorted(map_at(thing, *path).items())) or NONE


def selector_text(choice: Object | None) -> str:
    """A label selector in one line; empty where it chooses nothing or everything."""
    words = [(key, f"{key}={value}") for key, value in map_at(choice, "matchLabels").items()]
    words += [(term["key"], _term(term)) for term in list_at(choice, "matchExpressions")]
    return ",".join(word for _, word in sorted(words, key=itemgetter(0)))


def _term(term: Object) -> str:
    key: str = term["key"]
    match term["operator"]:
        case "Exists":
            return key
        case "DoesNotExist":
            return f"!{key}"
        case operator:
            return f"{key} {operator.lower()} ({','.join(sorted(list_at(term, 'values')))})"


NAME = TableColumn(name="Name", read=at("metadata", "name"), format="name")
AGE = column("Age", age_of("metadata", "creationTimestamp"))
CREATED_AT = column("Created At", at("metadata", "creationTimestamp", default=None), "date")
PLAIN = (NAME, CREATED_AT)
"""The table of a kind that has none of its own."""
