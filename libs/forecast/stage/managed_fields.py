"""Fields of an object with the managers that own them, as server-side apply keeps them.

A field is one leaf: a label, an annotation, `spec.unschedulable`. Pure. Must not know what any
field means, or who the managers are.
"""

from collections.abc import Mapping
from typing import Any

import msgspec


class OwnedField(msgspec.Struct, frozen=True):
    """A field's value, and who owns it."""

    value: Any
    managers: tuple[str, ...]


Fields = dict[str, OwnedField]


def applied(fields: Fields, manager: str, wanted: Mapping[str, Any]) -> Fields:
    """After an apply with force of all that this manager wants.

    What it wants otherwise than it stands becomes its alone; what stands as it wants it becomes its
    too; what it no longer wants goes, unless somebody else owns it.
    """
    after: Fields = {}
    for key, held in fields.items():
        if key in wanted:
            after[key] = _taken(held, manager, wanted[key])
        elif manager not in held.managers:
            after[key] = held
        elif len(held.managers) > 1:
            rest = tuple(each for each in held.managers if each != manager)
            after[key] = OwnedField(held.value, rest)
    for key, value in wanted.items():
        if key not in fields:
            after[key] = OwnedField(value, (manager,))
    return after


def updated(fields: Fields, manager: str, changes: Mapping[str, Any]) -> Fields:
    """After a write that is no apply: it takes over what it changes, and only that.

    None removes a field, whoever owned it. A value that stands already is no change.
    """
    after = dict(fields)
    for key, value in changes.items():
        if value is None:
            after.pop(key, None)
        elif key not in after or after[key].value != value:
            after[key] = OwnedField(value, (manager,))
    return after


def _taken(held: OwnedField, manager: str, value: Any) -> OwnedField:
    if held.value != value or type(held.value) is not type(value):
        return OwnedField(value, (manager,))
    if manager in held.managers:
        return held
    return OwnedField(value, (*held.managers, manager))
