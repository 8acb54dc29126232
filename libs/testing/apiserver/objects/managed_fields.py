"""Field ownership: how an update changes `metadata.managedFields`.

An entry belongs to a manager, an operation (Apply or Update), a subresource and, for updates, a
version. The merging of old entries beyond ten updaters is not simulated.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, cast

from libs.testing.apiserver.objects.fields import (
    Fields,
    ShapeMismatch,
    difference,
    intersection,
    ordered,
    union,
)
from libs.testing.apiserver.objects.merge import Comparison, compare, unchanged
from libs.testing.apiserver.objects.shapes import MergeShape, encoded

_SYSTEM: Final = (
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation",
    "managedFields", "resourceVersion",
)  # fmt: skip
_STRIPPED: Final[Fields] = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {".": {}, **{f"f:{name}": {} for name in _SYSTEM}},
}
"""Fields that only the server sets; they have no owner."""


@dataclass(frozen=True, kw_only=True)
class FieldOwner:
    """One entry of managedFields."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str | None
    fields: Fields

    @property
    def identity(self) -> str:
        """The key of the entry, which also orders conflicts."""
        words = {"manager": self.manager, "operation": self.operation}
        if self.operation == "Update":
            words["apiVersion"] = self.api_version
        if self.subresource:
            words["subresource"] = self.subresource
        return json.dumps(words, separators=(",", ":"), ensure_ascii=False)

    @property
    def description(self) -> str:
        """The name in a conflict message."""
        words = f'"{self.manager}"'
        if self.subresource:
            words += f' with subresource "{self.subresource}"'
        return f"{words} using {self.api_version}" if self.operation == "Update" else words


Owners = dict[str, FieldOwner]


def decoded(entries: Any) -> Owners | None:
    """Decode the owners; None where the entries were not written by a server."""
    owners = [_owner(entry) for entry in cast("list[Any]", entries or ())]
    known = [owner for owner in owners if owner is not None]
    if len(known) < len(owners):
        return None
    return {owner.identity: owner for owner in known}


def _owner(entry: Any) -> FieldOwner | None:
    if not isinstance(entry, dict):
        return None
    words = cast("dict[str, Any]", entry)
    fields: Any = words.get("fieldsV1") or {}
    if (
        words.get("operation") not in ("Apply", "Update")
        or not words.get("apiVersion")
        or words.get("fieldsType") != "FieldsV1"
        or not isinstance(fields, dict)
    ):
        return None
    return FieldOwner(
        manager=words.get("manager", ""),
        operation=words["operation"],
        api_version=words["apiVersion"],
        subresource=words.get("subresource", ""),
        time=words.get("time"),
        fields=cast("Fields", fields),
    )


def entries(owners: Owners, known: Any) -> list[dict[str, Any]]:
    """Encode the owners in the server's order; unchanged ones keep their entry."""
    old_entries: dict[str, Any] = {}
    for entry in cast("list[Any]", known or ()):
        owner = _owner(entry)
        if owner is not None:
            old_entries[owner.identity] = (owner, entry)
    return [_entry(owner, old_entries.get(owner.identity)) for owner in _in_order(owners)]


def _in_order(owners: Owners) -> list[FieldOwner]:
    return sorted(
        owners.values(),
        key=lambda o: (o.operation, seconds(o.time), o.manager, o.api_version, o.subresource),
    )


def seconds(time: str | None) -> int:
    """Return the whole seconds of a time, the sort key of entries."""
    return int(datetime.fromisoformat(time).timestamp()) if time else 0


def _entry(
    owner: FieldOwner, old_entry: tuple[FieldOwner, dict[str, Any]] | None
) -> dict[str, Any]:
    if old_entry is not None and old_entry[0] == owner:
        return old_entry[1]
    entry: dict[str, Any] = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": owner.api_version,
        "time": owner.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": ordered(owner.fields),
        "subresource": owner.subresource,
    }
    return {name: value for name, value in entry.items() if value or name == "fieldsV1"}


def without_lost_fields(owners: Owners, winner: str, change: Comparison) -> Owners:
    """Return the owners after all but one lost the changed and removed fields."""
    lost = union(change.changed, change.removed)
    if not lost:
        return owners
    result: Owners = {}
    for identity, owner in owners.items():
        if identity == winner or not intersection(owner.fields, lost):
            result[identity] = owner
            continue
        kept = difference(owner.fields, lost)
        if kept:
            result[identity] = replace(owner, fields=kept)
    return result


def stripped(fields: Fields) -> Fields:
    return difference(fields, _STRIPPED)


def updated(
    owners: Owners, before: dict[str, Any], after: dict[str, Any], by: FieldOwner, shape: MergeShape
) -> Owners:
    """Return the owners after an update of the object."""
    change = compare(before, after, shape)
    result = dict(without_lost_fields(owners, "", change))
    gained = stripped(change.changed)
    if gained:
        existing = result.get(by.identity)
        fields = union(gained, existing.fields) if existing else gained
        result[by.identity] = replace(by, fields=fields)
    return result


def with_entries(obj: Mapping[str, Any], managed: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Return the object with these managedFields, or without any."""
    meta: dict[str, Any] = dict(obj.get("metadata") or {})
    meta.pop("managedFields", None)
    if managed:
        meta["managedFields"] = managed
    return {**obj, "metadata": meta}


def managed_of(obj: Mapping[str, Any] | None) -> list[dict[str, Any]] | None:
    """Return the managedFields of an object; None where it has none."""
    meta: Mapping[str, Any] = (obj or {}).get("metadata") or {}
    return meta.get("managedFields")


def without_times(managed: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Return the entries without their times."""
    return [{k: v for k, v in entry.items() if k != "time"} for entry in managed or ()]


def track(
    before: dict[str, Any] | None,
    after: dict[str, Any],
    *,
    manager: str,
    api_version: str,
    subresource: str,
    time: str,
    shape: MergeShape,
) -> dict[str, Any]:
    """Return `after` with its managedFields, as a create, replacement or patch stores it.

    Objects of built-in kinds are returned as a typed server encodes them.
    """
    live_entries = managed_of(before)
    owners = decoded(live_entries) or {}
    if not subresource:
        given = managed_of(after)
        cleared = given in ([], [{}])
        owners = {} if cleared else decoded(given) or owners
    live = with_entries(before, None) if before else encoded({"metadata": {}}, shape)
    result = encoded(with_entries(after, None), shape, like=live)
    if before is not None and not owners:
        return result
    by = FieldOwner(
        manager=manager or "unknown",
        operation="Update",
        api_version=api_version,
        subresource=subresource,
        time=time,
        fields={},
    )
    try:
        owners = updated(owners, live, result, by, shape)
    except ShapeMismatch:
        # Objects that cannot be compared keep their owners.
        return with_entries(result, live_entries)
    managed: list[dict[str, Any]] | None = entries(owners, live_entries)
    if without_times(managed) == without_times(live_entries) and unchanged(live, result, shape):
        managed = live_entries
    return with_entries(result, managed)
