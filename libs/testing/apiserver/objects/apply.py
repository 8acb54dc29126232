"""Server-side apply: merges a configuration into an object, by the owners of its fields.

The caller checks the preconditions `metadata.uid` and `metadata.resourceVersion`.
"""

from dataclasses import replace
from typing import Any, Final

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
from libs.testing.apiserver.objects.merge import (
    Comparison,
    compare,
    merged,
    misfits,
    unchanged,
    without,
)
from libs.testing.apiserver.objects.shapes import MergeShape, encoded
from libs.testing.apiserver.status import StatusError

_FENCE: Final = ("uid", "resourceVersion")


def apply(
    live: dict[str, Any] | None,
    desired: dict[str, Any],
    *,
    manager: str,
    force: bool,
    api_version: str,
    subresource: str,
    time: str,
    shape: MergeShape,
) -> dict[str, Any]:
    """Return the object after an apply; `live` itself if nothing changed."""
    if managed_of(desired) is not None:
        raise StatusError(400, "BadRequest", "metadata.managedFields must be nil")
    _check(desired, shape)
    desired = _without_fence(desired)
    known = managed_of(live)
    owners = decoded(known)
    if owners is None:
        raise StatusError(500, "", "failed to decode managed fields")
    before = with_entries(live, None) if live else encoded({"metadata": {}}, shape)
    applier = FieldOwner(
        manager=manager,
        operation="Apply",
        api_version=api_version,
        subresource=subresource,
        time=time,
        fields=stated(desired, shape),
    )
    if not owners and live is not None:
        first = replace(applier, manager="before-first-apply", operation="Update", fields={})
        owners = updated({}, _type_only(live, shape), before, first, shape)
    result, owners = _applied(before, desired, owners, applier, force=force, shape=shape)
    after = encoded(result, shape, like=before)
    managed = entries(owners, known)
    same_owners = without_times(managed) == without_times(known)
    if live is not None and same_owners and unchanged(before, after, shape):
        return live
    return with_entries(after, managed)


def _check(desired: dict[str, Any], shape: MergeShape) -> None:
    problems = misfits(desired, shape)
    if not problems:
        return
    meta: dict[str, Any] = desired.get("metadata") or {}
    group, _, version = str(desired.get("apiVersion", "")).rpartition("/")
    text = problems[0] if len(problems) == 1 else "errors:\n  " + "\n  ".join(problems)
    raise StatusError(
        500,
        "",
        f"failed to create typed patch object ({meta.get('namespace', '')}/{meta.get('name', '')}; "
        f"{group}/{version}, Kind={desired.get('kind', '')}): {text}",
    )


def _without_fence(desired: dict[str, Any]) -> dict[str, Any]:
    meta = desired.get("metadata")
    if not isinstance(meta, dict) or not any(name in meta for name in _FENCE):
        return desired
    metadata: dict[str, Any] = {k: v for k, v in desired["metadata"].items() if k not in _FENCE}
    return {**desired, "metadata": metadata}


def _type_only(live: dict[str, Any], shape: MergeShape) -> dict[str, Any]:
    names = {"apiVersion": live.get("apiVersion"), "kind": live.get("kind")}
    return encoded(names, shape)


def _applied(
    before: dict[str, Any],
    desired: dict[str, Any],
    owners: Owners,
    applier: FieldOwner,
    *,
    force: bool,
    shape: MergeShape,
) -> tuple[dict[str, Any], Owners]:
    last = owners.get(applier.identity)
    claims = {**owners, applier.identity: applier}
    try:
        result = merged(before, desired, shape)
        if last is not None and difference(last.fields, applier.fields):
            result = _pruned(result, claims, last.fields, shape)
        change = compare(before, result, shape)
    except ShapeMismatch as error:
        raise StatusError(500, "", f"failed to create typed live object: {error}") from error
    if not force:
        _refuse_conflicts(claims, applier, change)
    claims = dict(without_lost_fields(claims, applier.identity, change))
    claims.pop(applier.identity, None)
    kept_fields = stripped(applier.fields)
    if kept_fields:
        # A real server changes the time of an entry only with the object.
        known_time = last.time if last else None
        time = known_time if unchanged(before, result, shape) else applier.time
        claims[applier.identity] = replace(applier, fields=kept_fields, time=time)
    return result, claims


def _refuse_conflicts(owners: Owners, applier: FieldOwner, change: Comparison) -> None:
    conflicts: list[tuple[FieldOwner, list[str]]] = []
    for identity, owner in sorted(owners.items()):
        if identity != applier.identity:
            lost = list(paths(intersection(owner.fields, change.changed)))
            if lost:
                conflicts.append((owner, lost))
    if not conflicts:
        return
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {owner.description}",
            "field": path,
        }
        for owner, lost in conflicts
        for path in lost
    ]
    if len(causes) == 1:
        text = f"conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines = [
            "\n".join([f"conflicts with {owner.description}:", *(f"- {path}" for path in lost)])
            for owner, lost in conflicts
        ]
        text = "conflicts: " + "\n".join(lines)
    raise StatusError(409, "Conflict", f"Apply failed with {len(causes)} {text}", causes=causes)


def _pruned(obj: dict[str, Any], owners: Owners, last: Fields, shape: MergeShape) -> dict[str, Any]:
    """Return the object without the fields that this manager stops applying and no other owns.

    Fields below such a field that have no owner go with it. Parts that the manager never applied
    stay.
    """
    part = {name: value for name, value in obj.items() if f"f:{name}" in last}
    owned: Fields = {}
    for owner in owners.values():
        owned = union(owned, owner.fields)
    owned, last = named(owned, shape), named(last, shape)
    everything = named(stated(part, shape), shape)
    remaining = named(stated(without(part, last, shape), shape), shape)
    kept = without(part, difference(everything, union(remaining, owned)), shape)
    removed = difference(everything, named(stated(kept, shape), shape))
    part = without(part, intersection(removed, last), shape)
    return {
        name: part.get(name, value)
        for name, value in obj.items()
        if name in part or f"f:{name}" not in last
    }
