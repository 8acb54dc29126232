"""The table of a custom kind: its `additionalPrinterColumns`, or name and age without any."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from libs.testing.apiserver.kinds.kind import CustomColumn
from libs.testing.apiserver.printers.columns import (
    NAME,
    Cell,
    CellReader,
    Object,
    TableColumn,
    value_at,
)
from libs.testing.apiserver.printers.durations import since

_AGE = CustomColumn(name="Age", type="date", json_path=".metadata.creationTimestamp")


@lru_cache(maxsize=256)
def columns(additional: tuple[CustomColumn, ...]) -> Sequence[TableColumn]:
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
