"""A custom kind's columns: their types, and what stands where a value is not of the type."""

from typing import Any

import msgspec
import pytest

from libs.testing.apiserver.kinds.kind import CustomColumn, ResourceKind
from libs.testing.apiserver.printers import tables
from libs.testing.apiserver.schemas.schema import Schema
from libs.testing.apiserver.status import StatusError
from tests.unit.testing.apiserver_tables.builders import NOW, ago, cells, kind, made

THING = made(
    "w",
    spec={
        "n": 7, "f": 1.5, "b": True, "s": "text", "nul": None, "list": ["p", "q"],
        "map": {"z": 1, "a": ["x<y"]}, "when": ago(300), "bad": "yesterday",
    },
)  # fmt: skip


def custom(*columns: CustomColumn) -> ResourceKind:
    """A kind that a definition made."""
    return msgspec.structs.replace(
        kind("pods"), group="a.test", plural="widgets", schema=Schema(root={}, rules={}),
        columns=columns,
    )  # fmt: skip


def cell(type: str, field: str) -> Any:
    """Of the one column that there is."""
    column = CustomColumn(name="X", type=type, json_path=f".spec.{field}")
    return cells(custom(column), THING)["X"]


@pytest.mark.parametrize(
    ("type", "field", "expected"),
    [
        ("string", "s", "text"),
        ("string", "n", "7"),
        ("string", "f", "1.5"),
        ("string", "b", "true"),
        ("string", "nul", "<no value>"),
        ("string", "none", None),
        ("string", "list", '["p","q"]'),
        ("string", "list[*]", "p"),
        ("string", "map", '{"a":["x\\u003cy"],"z":1}'),
        ("integer", "n", 7),
        ("integer", "f", 1),
        ("integer", "b", None),
        ("integer", "s", None),
        ("integer", "nul", None),
        ("number", "f", 1.5),
        ("number", "n", 7),
        ("boolean", "b", True),
        ("boolean", "s", None),
        ("date", "when", "5m"),
        ("date", "bad", "<invalid>"),
        ("date", "n", None),
    ],
)
def test_a_cell_by_the_type_of_its_column(type: str, field: str, expected: Any) -> None:
    assert cell(type, field) == expected


def test_without_columns_there_are_name_and_age() -> None:
    assert cells(custom(), THING) == {"Name": "w", "Age": "90s"}


def test_a_column_is_declared_as_its_definition_has_it() -> None:
    column = CustomColumn(name="N", type="integer", format="int32", json_path=".spec.n", priority=1)
    table = tables.table(custom(column), [THING], now=NOW, include="")
    assert table["columnDefinitions"] == [
        {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
        {"name": "N", "type": "integer", "format": "int32", "description": "", "priority": 1},
    ]


def test_a_path_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(StatusError) as refused:
        cells(custom(CustomColumn(name="X", type="string", json_path=".a[1:2]")), THING)
    assert (refused.value.code, refused.value.reason) == (400, "BadRequest")
    assert "'.a[1:2]'" in refused.value.message
