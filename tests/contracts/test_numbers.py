"""Every integer of a message has bounds, and numbers derived from what was read keep them."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from libs.contracts import records
from libs.contracts.commands import Command
from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import NodeRecord
from libs.contracts.numbers import LIMIT, next_number, parse_count, parse_version
from tests.contracts.goldens import path_of
from tests.contracts.structs import name_of, structs


def integers(info: Any) -> Iterator[inspect.IntType]:
    """Yield the integers in a type, except those in structs within it."""
    if isinstance(info, inspect.IntType):
        yield info
    for name in ("types", "item_types"):
        for inner in getattr(info, name, ()):
            yield from integers(inner)
    for name in ("item_type", "key_type", "value_type"):
        if hasattr(info, name):
            yield from integers(getattr(info, name))


@pytest.mark.parametrize(
    "struct",
    sorted({*structs(), records.PoolFacts, records.DeviceHold, records.LostJournal}, key=name_of),
    ids=name_of,
)
def test_every_integer_has_bounds(struct: type[Any]) -> None:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        for integer in integers(field.type):
            assert integer.ge in (0, -LIMIT), field.name
            assert integer.le == LIMIT, field.name


@pytest.mark.parametrize("digits", [17, 400, 4_300, 5_000])
@pytest.mark.parametrize(
    ("name", "kind", "field"),
    [
        ("command.idle", Command, "token"),
        ("command.idle", Command, "op"),
        ("command.idle", Command, "epoch"),
        ("node.record", NodeRecord, "token"),
        ("node.record", NodeRecord, "v"),
    ],
)
def test_a_number_with_many_digits_is_malformed(
    name: str, kind: type[Any], field: str, digits: int
) -> None:
    tree = msgspec.json.decode(path_of(name).read_bytes())
    number = msgspec.Raw(b"9" * digits)
    with pytest.raises(MalformedMessage) as raised:
        decode(kind, msgspec.json.encode({**tree, field: number}))
    assert len(str(raised.value)) < 200


def test_the_next_number_is_within_the_bounds() -> None:
    assert next_number([]) == 1
    assert next_number([3, 7, 5]) == 8
    assert next_number([3, LIMIT - 1]) == LIMIT
    assert next_number([3, LIMIT]) == 4


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("580", 580), ("9" * 15, 10**15 - 1), ("9" * 5_000, None), ("²", None), ("", None)],
)
def test_a_count_in_a_text(text: str, count: int | None) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("535.104.05", (535, 104, 5)),
        ("v1.34.2-gke.1", (1, 34, 2)),
        ("1.27+", (1, 27)),
        ("580", (580,)),
        ("", ()),
        ("v", ()),
        ("sha256:12", ()),
        ("²", ()),
        ("9" * 5_000, ()),
        ("580." + "1" * 5_000, (580,)),
    ],
)
def test_the_numbers_of_a_version(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_version(text) == numbers
