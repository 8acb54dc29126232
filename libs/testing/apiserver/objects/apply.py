"""Server-side apply: the wanted fields merged into an object by their owners.

Knows nothing of the store: what the result means (a new object, a new revision, nothing) is the
server's to say, and so are the guards `metadata.uid` and `metadata.resourceVersion`.
"""

from dataclasses import replace
from typing import Any, Final

from libs.testing.apiserver.objects.comparison import Comparison, compare, unchanged
from libs.testing.apiserver.objects.fields import (
    Fields,
    ShapeMismatch,
    difference,
    intersection,
    named,
    paths,
    stated,
    union,
)
from libs.testing.apiserver.objects.managed_fields import (
    FieldOwner,
    Owners,
    decoded,
    entries,
    managed_of,
    stripped,
    updated,
    with_entries,
    without_lost_fields,
    without_times,
)
from libs.testing.apiserver.objects.merge import merged, misfits, without
from libs.testing.apiserver.objects.shapes import MergeShape, encoded
from libs.testing.apiserver.status import StatusError

_GUARDS: Final = ("uid", "resourceVersion")


def apply(
    live: dict[str, Any] | None,
    wanted: dict[str, Any],
    *,
    manager: str,
    force: bool,
    api_version: str,
    subresource: str,
    time: str,
    shape: MergeShape,
) -> dict[str, Any]:
    """The object after somebody said what it shall hold; `live` itself if nothing changed."""
    if managed_of(wanted) is not None:
        raise StatusError(400, "BadRequest", "metadata.managedFields must be nil")
    _check(wanted, shape)
    wanted = _unguarded(wanted)
    known = managed_of(live)
    owners = decoded(known)
    if owners is None:
        raise StatusError(500, "", "failed to decode managed fields")
    before = with_entries(live, None) if live else encoded({"metadata": {}}, shape)
    me = FieldOwner(
        manager=manager,
        operation="Apply",
        api_version=api_version,
        subresource=subresource,
        time=time,
        fields=stated(wanted, shape),
    )
    if not owners and live is not None:
        first = replace(me, manager="before-first-apply", operation="Update", fields={})
        owners = updated({}, _nothing(live, shape), before, first, shape)
    result, owners = _applied(before, wanted, owners, me, force=force, shape=shape)
    after = encoded(result, shape, like=before)
    managed = entries(owners, known)
    as_before = without_times(managed) == without_times(known)
    if live is not None and as_before and unchanged(before, after, shape):
        return live
    return with_entries(after, managed)


def _check(wanted: dict[str, Any], shape: MergeShape) -> None:
    found = misfits(wanted, shape)
    if not found:
        return
    meta: dict[str, Any] = wanted.get("metadata") or {}
    group, _, version = str(wanted.get("apiVersion", "")).rpartition("/")
    words = found[0] if len(found) == 1 else "errors:\n  " + "\n  ".join(found)
    raise StatusError(
        500,
        "",
        f"failed to create typed patch object ({meta.get('namespace', '')}/{meta.get('name', '')}; "
        f"{group}/{version}, Kind={wanted.get('kind', '')}): {words}",
    )


def _unguarded(wanted: dict[str, Any]) -> dict[str, Any]:
    meta = wanted.get("metadata")
    if not isinstance(meta, dict) or not any(guard in meta for guard in _GUARDS):
        return wanted
    left: dict[str, Any] = {k: v for k, v in wanted["metadata"].items() if k not in _GUARDS}
    return {**wanted, "metadata": left}


def _nothing(live: dict[str, Any], shape: MergeShape) -> dict[str, Any]:
    names = {"apiVersion": live.get("apiVersion"), "kind": live.get("kind")}
    return encoded(names, shape)


def _applied(
    before: dict[str, Any],
    wanted: dict[str, Any],
    owners: Owners,
    me: FieldOwner,
    *,
    force: bool,
    shape: MergeShape,
) -> tuple[dict[str, Any], Owners]:
    last = owners.get(me.identity)
    claims = {**owners, me.identity: me}
    try:
        result = merged(before, wanted, shape)
        if last is not None and difference(last.fields, me.fields):
            result = _pruned(result, claims, last.fields, shape)
        change = compare(before, result, shape)
    except ShapeMismatch as error:
        raise StatusError(500, "", f"failed to create typed live object: {error}") from error
    if not force:
        _refuse_conflicts(claims, me, change)
    claims = dict(without_lost_fields(claims, me.identity, change))
    claims.pop(me.identity, None)
    mine = stripped(me.fields)
    if mine:
        # Whoever changes nothing keeps the time of the entry, and a new one has none.
        kept = last.time if last else None
        time = kept if unchanged(before, result, shape) else me.time
        claims[me.identity] = replace(me, fields=mine, time=time)
    return result, claims


def _refuse_conflicts(owners: Owners, me: FieldOwner, change: Comparison) -> None:
    found: list[tuple[FieldOwner, list[str]]] = []
    for identity, owner in sorted(owners.items()):
        if identity != me.identity:
            lost = list(paths(intersection(owner.fields, change.changed)))
            if lost:
                found.append((owner, lost))
    if not found:
        return
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {owner.description}",
            "field": path,
        }
        for owner, lost in found
        for path in lost
    ]
    if len(causes) == 1:
        words = f"conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines = [
            "\n".join([f"conflicts with {owner.description}:", *(f"- {path}" for path in lost)])
            for owner, lost in found
        ]
        words = "conflicts: " + "\n".join(lines)
    raise StatusError(409, "Conflict", f"Apply failed with {len(causes)} {words}", causes=causes)


def _pruned(obj: dict[str, Any], owners: Owners, last: Fields, shape: MergeShape) -> dict[str, Any]:
    """The object without what this manager applied before, does not now, and nobody else owns.

    What was below such a field without an owner goes with it. Parts that the manager never applied
    are not looked at.
    """
    part = {name: value for name, value in obj.items() if f"f:{name}" in last}
    owned: Fields = {}
    for owner in owners.values():
        owned = union(owned, owner.fields)
    owned, last = named(owned, shape), named(last, shape)
    everything = named(stated(part, shape), shape)
    left = named(stated(without(part, last, shape), shape), shape)
    kept = without(part, difference(everything, union(left, owned)), shape)
    gone = difference(everything, named(stated(kept, shape), shape))
    part = without(part, intersection(gone, last), shape)
    return {
        name: part.get(name, value)
        for name, value in obj.items()
        if name in part or f"f:{name}" not in last
    }
