"""A custom kind in a table: its `additionalPrinterColumns`, or name and age where it names none."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from libs.testing.apiserver.kinds.kind import CustomColumn
from libs.testing.apiserver.printers.columns import NAME, Cell, CellReader, Object, TableColumn
from libs.testing.apiserver.printers.durations import since
from libs.testing.apiserver.printers.json_paths import Path

_HTML = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"})
_AGE = CustomColumn(name="Age", type="date", json_path=".metadata.creationTimestamp")


@lru_cache(maxsize=256)
def columns(additional: tuple[CustomColumn, ...]) -> Sequence[TableColumn]:
    """`PathRefused` where one of their paths cannot be read."""
    return (NAME, *(_column(each) for each in additional or (_AGE,)))


def _column(custom: CustomColumn) -> TableColumn:
    return TableColumn(
        name=custom.name,
        read=_reading(Path(custom.json_path), custom.type),
        type=custom.type,
        format=custom.format,
        priority=custom.priority,
    )


def _reading(path: Path, type: str) -> CellReader:
    def read(thing: Object, now: float) -> Cell:
        values = path.follow(thing)
        # A column holds one value: of many, the first.
        return _cell(values[0], type, now) if values else None

    return read


def _cell(value: Any, type: str, now: float) -> Cell:
    """None for a value that is not of the column's type."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match type:
        case "string":
            return _text(value)
        case "integer" if number:
            return int(value)
        case "number" if number:
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "date" if isinstance(value, str):
            return _age(value, now)
        case _:
            return None


def _age(timestamp: str, now: float) -> Cell:
    try:
        return since(timestamp, now)
    except ValueError:
        return "<invalid>"


def _text(value: Any) -> Cell:
    """Any value, as the real server writes it out: a list or an object as JSON fit for HTML."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    text = msgspec.json.encode(value, order="sorted").decode()
    return text.translate(_HTML) if isinstance(value, list | dict) else text
