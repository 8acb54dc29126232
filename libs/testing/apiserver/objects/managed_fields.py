"""Who owns which fields: what an update does to `metadata.managedFields`.

An entry belongs to a manager, an operation (Apply or Update), a subresource and, of updates, a
version. Knows nothing of how a change came about; server-side apply is in
`libs.testing.apiserver.objects.apply`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, cast

from libs.testing.apiserver.objects.comparison import Comparison, compare, unchanged
from libs.testing.apiserver.objects.fields import (
    Fields,
    ShapeMismatch,
    difference,
    intersection,
    ordered,
    union,
)
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
"""Fields of the server, which nobody owns."""


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
        """What makes two entries the same one; also the order in which conflicts are told."""
        words = {"manager": self.manager, "operation": self.operation}
        if self.operation == "Update":
            words["apiVersion"] = self.api_version
        if self.subresource:
            words["subresource"] = self.subresource
        return json.dumps(words, separators=(",", ":"), ensure_ascii=False)

    @property
    def description(self) -> str:
        """The owner as a message about a conflict names it."""
        words = f'"{self.manager}"'
        if self.subresource:
            words += f' with subresource "{self.subresource}"'
        return f"{words} using {self.api_version}" if self.operation == "Update" else words


Owners = dict[str, FieldOwner]


def decoded(entries: Any) -> Owners | None:
    """The owners; None: these are no entries that a server wrote."""
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
    """The owners as an object carries them, in the server's order; known ones stay as they are."""
    as_was: dict[str, Any] = {}
    for entry in cast("list[Any]", known or ()):
        owner = _owner(entry)
        if owner is not None:
            as_was[owner.identity] = (owner, entry)
    return [_entry(owner, as_was.get(owner.identity)) for owner in _in_order(owners)]


def _in_order(owners: Owners) -> list[FieldOwner]:
    return sorted(
        owners.values(),
        key=lambda o: (o.operation, seconds(o.time), o.manager, o.api_version, o.subresource),
    )


def seconds(time: str | None) -> int:
    """The whole seconds of a time, by which entries are put in order."""
    return int(datetime.fromisoformat(time).timestamp()) if time else 0


def _entry(owner: FieldOwner, was: tuple[FieldOwner, dict[str, Any]] | None) -> dict[str, Any]:
    if was is not None and was[0] == owner:
        return was[1]
    words: dict[str, Any] = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": owner.api_version,
        "time": owner.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": ordered(owner.fields),
        "subresource": owner.subresource,
    }
    return {name: value for name, value in words.items() if value or name == "fieldsV1"}


def without_lost_fields(owners: Owners, to: str, change: Comparison) -> Owners:
    """The owners after everybody but one lost what changed or went."""
    lost = union(change.changed, change.removed)
    if not lost:
        return owners
    result: Owners = {}
    for identity, owner in owners.items():
        if identity == to or not intersection(owner.fields, lost):
            result[identity] = owner
            continue
        left = difference(owner.fields, lost)
        if left:
            result[identity] = replace(owner, fields=left)
    return result


def stripped(fields: Fields) -> Fields:
    """The set without what the server owns."""
    return difference(fields, _STRIPPED)


def updated(
    owners: Owners, before: dict[str, Any], after: dict[str, Any], by: FieldOwner, shape: MergeShape
) -> Owners:
    """The owners after somebody put another version of the object there."""
    change = compare(before, after, shape)
    result = dict(without_lost_fields(owners, "", change))
    gained = stripped(change.changed)
    if gained:
        mine = result.get(by.identity)
        fields = union(gained, mine.fields) if mine else gained
        result[by.identity] = replace(by, fields=fields)
    return result


def with_entries(obj: Mapping[str, Any], managed: list[dict[str, Any]] | None) -> dict[str, Any]:
    """The object with these managedFields; None or nothing: without any."""
    meta: dict[str, Any] = dict(obj.get("metadata") or {})
    meta.pop("managedFields", None)
    if managed:
        meta["managedFields"] = managed
    return {**obj, "metadata": meta}


def managed_of(obj: Mapping[str, Any] | None) -> list[dict[str, Any]] | None:
    """The managedFields of an object; None where it says nothing of them."""
    meta: Mapping[str, Any] = (obj or {}).get("metadata") or {}
    return meta.get("managedFields")


def without_times(managed: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """The entries but for when they were written."""
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
    """What is stored when somebody creates, puts or patches: `after`, and who owns its fields now.

    Objects of built-in kinds come back as a typed server writes them.
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
        # A server keeps the owners it knows when an object cannot be compared.
        return with_entries(result, live_entries)
    managed: list[dict[str, Any]] | None = entries(owners, live_entries)
    if without_times(managed) == without_times(live_entries) and unchanged(live, result, shape):
        managed = live_entries
    return with_entries(result, managed)
