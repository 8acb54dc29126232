"""Fields of an object with their managers, as server-side apply keeps them.

A field is one leaf: a label, an annotation, `spec.unschedulable`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec


class OwnedField(msgspec.Struct, frozen=True):
    value: Any
    managers: tuple[str, ...]


Fields = dict[str, OwnedField]


def applied(fields: Fields, manager: str, wanted: Mapping[str, Any]) -> Fields:
    """Return the fields after an apply with force of everything this manager wants.

    Changed values become its alone, unchanged ones are shared, and fields it no longer wants go
    unless another manager owns them.
    """
    after: Fields = {}
    for key, field in fields.items():
        if key in wanted:
            after[key] = _shared(field, manager, wanted[key])
        elif manager not in field.managers:
            after[key] = field
        elif len(field.managers) > 1:
            rest = tuple(each for each in field.managers if each != manager)
            after[key] = OwnedField(field.value, rest)
    for key, value in wanted.items():
        if key not in fields:
            after[key] = OwnedField(value, (manager,))
    return after


def updated(fields: Fields, manager: str, changes: Mapping[str, Any]) -> Fields:
    """Return the fields after a plain write, which takes over only what it changes.

    None removes a field, whoever owned it.
    """
    after = dict(fields)
    for key, value in changes.items():
        if value is None:
            after.pop(key, None)
        elif key not in after or after[key].value != value:
            after[key] = OwnedField(value, (manager,))
    return after


def _shared(field: OwnedField, manager: str, value: Any) -> OwnedField:
    if field.value != value or type(field.value) is not type(value):
        return OwnedField(value, (manager,))
    if manager in field.managers:
        return field
    return OwnedField(value, (*field.managers, manager))
