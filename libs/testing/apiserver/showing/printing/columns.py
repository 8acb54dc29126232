"""The words in which a kind's table is written: a column, and the cells that many kinds share.

Must know no kind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from libs.testing.apiserver.showing.printing.durations import since

Object = Mapping[str, Any]
Cell = str | int | float | bool | None
Reading = Callable[[Object, float], Cell]
"""A cell of an object, now."""

NONE = "<none>"
UNKNOWN = "<unknown>"


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column; a `wide` one is shown to those who ask for more."""

    name: str
    read: Reading
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


def column(name: str, read: Reading, type: str = "string") -> Column:
    """One that is always shown."""
    return Column(name=name, read=read, type=type)


def wide(name: str, read: Reading, type: str = "string") -> Column:
    """One for `-o wide`."""
    return Column(name=name, read=read, type=type, priority=1)


def at(*path: str, default: Cell = "") -> Reading:
    """What stands at this path; an empty value is as good as none."""

    def read(thing: Object, _now: float) -> Cell:
        return find(thing, *path) or default

    return read


def count(*path: str) -> Reading:
    """A number, 0 where there is none."""
    return at(*path, default=0)


def size(*path: str) -> Reading:
    """How many entries stand at this path."""

    def read(thing: Object, _now: float) -> Cell:
        return len(find(thing, *path) or ())

    return read


def ago(*path: str) -> Reading:
    """How long ago the time at this path was."""

    def read(thing: Object, now: float) -> Cell:
        return since(find(thing, *path), now)

    return read


def find(thing: Any, *path: str) -> Any:
    """What stands at this path, or None."""
    for name in path:
        if not isinstance(thing, Mapping):
            return None
        thing = thing.get(name)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return thing  # pyright: ignore[reportUnknownVariableType]


def items(thing: Any, *path: str) -> Sequence[Any]:
    """The list at this path."""
    return find(thing, *path) or ()


def pairs(thing: Any, *path: str) -> Mapping[str, Any]:
    """The map at this path."""
    return find(thing, *path) or {}


def true_condition(thing: Object, type: str) -> bool:
    """Whether the first condition of this type in its status says True."""
    for condition in items(thing, "status", "conditions"):
        if condition.get("type") == type:
            return condition.get("status") == "True"
    return False


def labels(thing: Any, *path: str) -> str:
    """The map at this path, as a selector is written."""
    return ",".join(f"{key}={value}" for key, value in sorted(pairs(thing, *path).items())) or NONE


def selector(choice: Object | None) -> str:
    """A label selector in one line; empty where it chooses nothing or everything."""
    words = [(key, f"{key}={value}") for key, value in pairs(choice, "matchLabels").items()]
    words += [(term["key"], _term(term)) for term in items(choice, "matchExpressions")]
    return ",".join(word for _, word in sorted(words, key=itemgetter(0)))


def _term(term: Object) -> str:
    key: str = term["key"]
    match term["operator"]:
        case "Exists":
            return key
        case "DoesNotExist":
            return f"!{key}"
        case operator:
            return f"{key} {operator.lower()} ({','.join(sorted(items(term, 'values')))})"


NAME = Column(name="Name", read=at("metadata", "name"), format="name")
AGE = column("Age", ago("metadata", "creationTimestamp"))
CREATED_AT = column("Created At", at("metadata", "creationTimestamp", default=None), "date")
PLAIN = (NAME, CREATED_AT)
"""The table of a kind that has none of its own."""
