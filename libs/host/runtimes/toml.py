"""Read TOML of others, and write it, which Python's library does not."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import Any, Final, cast

Table = Mapping[str, Any]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_SHORT: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


class NotToml(Exception):
    """A text is not TOML, or has numbers that no program means; the text says why."""


def loads(text: str) -> dict[str, Any]:
    """Return the table of a text, or raise `NotToml`.

    Python refuses to read integers of more than 4,300 digits, and to write such that were read as
    hexadecimal ones, with an error of its own.
    """
    try:
        table = tomllib.loads(text)
        dumps(table)
    except (ValueError, RecursionError) as error:
        raise NotToml(str(error)) from None
    return table


def dumps(table: Table) -> str:
    """Return a text that reads back as this table."""
    return "".join(_lines(table, ()))


def _lines(table: Table, path: tuple[str, ...]) -> Iterator[str]:
    tables = {key: cast(Table, value) for key, value in table.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in table.items() if key not in tables}
    if path and (plain or not tables):
        yield f"\n[{'.'.join(map(_key, path))}]\n"
    for key, value in plain.items():
        yield f"{_key(key)} = {_value(value)}\n"
    for key, value in tables.items():
        yield from _lines(value, (*path, key))


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _text(value)
        case datetime() | date() | time():
            return value.isoformat()
        case list():
            return f"[{', '.join(map(_value, cast(list[Any], value)))}]"
        case Mapping():
            items = cast(Table, value).items()
            return f"{{{', '.join(f'{_key(key)} = {_value(each)}' for key, each in items)}}}"
        case _:
            raise TypeError(f"TOML has no {type(value).__name__}")


def _text(text: str) -> str:
    return f'"{"".join(map(_character, text))}"'


def _character(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character < " " or character == "\x7f":
        return _SHORT.get(character, f"\\u{ord(character):04x}")
    return character
