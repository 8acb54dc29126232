"""Introspection of all structs in messages, for tests."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from libs.contracts.catalogue import FORMS


def structs() -> set[type[Any]]:
    """Return every struct of any form, at any depth."""
    found: set[type[Any]] = set()
    for form in FORMS:
        found |= _within(inspect.type_info(form.message))
        if form.body is not None:
            found |= _within(inspect.type_info(form.body))
    return found


def _within(info: Any) -> set[type[Any]]:
    found: set[type[Any]] = set()
    if isinstance(info, inspect.StructType):
        found.add(info.cls)
        for field in info.fields:
            found |= _within(field.type)
    for name in ("types", "item_types"):
        for inner in getattr(info, name, ()):
            found |= _within(inner)
    for name in ("item_type", "key_type", "value_type"):
        if hasattr(info, name):
            found |= _within(getattr(info, name))
    return found


def instances(value: Any) -> Iterator[msgspec.Struct]:
    """Yield every struct in a value, including the value."""
    if isinstance(value, msgspec.Struct):
        yield value
        for name in value.__struct_fields__:
            yield from instances(getattr(value, name))
    elif isinstance(value, dict):
        for inner in value.values():  # pyright: ignore[reportUnknownVariableType]
            yield from instances(inner)
    elif isinstance(value, list | tuple):
        for inner in value:  # pyright: ignore[reportUnknownVariableType]
            yield from instances(inner)


def name_of(struct: type[Any]) -> str:
    """Return a short, unique name of a struct."""
    return f"{struct.__module__.rpartition('.')[2]}.{struct.__name__}"


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """Return a field's default, or `NODEFAULT` if the field is required."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
