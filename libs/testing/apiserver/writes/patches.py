"""JSON patches, merge patches, strategic merge patches, and server-side apply."""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from libs.testing.apiserver.bodies import APPLY, checked_object, parse_json
from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.status_errors import (
    bad_request,
    conflict,
    invalid_options,
    not_found,
)
from libs.testing.apiserver.objects.apply import apply
from libs.testing.apiserver.objects.json import JsonObject
from libs.testing.apiserver.objects.shapes import ANYTHING, MergeShape
from libs.testing.apiserver.status import StatusError, forbidden, required
from libs.testing.apiserver.store import StoredObject
from libs.testing.apiserver.writes.admission import (
    WriteOutcome,
    WriteTarget,
    check_name,
    set_namespace,
)
from libs.testing.apiserver.writes.object_writer import ObjectWriter

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def check_options(*, applies: bool, manager: str, force: bool) -> None:
    """Refuse an apply without fieldManager, and force without apply."""
    if applies and not manager:
        cause = required("fieldManager", "is required for apply patch")
        raise invalid_options("PatchOptions", [cause])
    if force and not applies:
        cause = forbidden("force", "may not be specified for non-apply patch")
        raise invalid_options("PatchOptions", [cause])


def patch_function(
    content_type: str, body: bytes, kind: ResourceKind
) -> Callable[[JsonObject], JsonObject]:
    """Return the function that patches an object."""
    accepted = (JSON_PATCH, MERGE) if kind.custom else (JSON_PATCH, MERGE, STRATEGIC)
    if content_type not in accepted:
        message = (
            "the body of the request was in an unknown format - accepted media types include: "
            f"{', '.join((*accepted, APPLY))}"
        )
        raise StatusError(415, "UnsupportedMediaType", message)
    try:
        patch: Any = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request("invalid JSON patch") from error

    def patched(live: JsonObject) -> JsonObject:
        if content_type == JSON_PATCH:
            result = json_patch(live, patch)
        elif content_type == MERGE:
            result = merge_patch(live, patch)
        else:
            result = strategic_patch(live, patch, kind.shape)
        return checked_object(result, kind, live)

    return patched


class Applier:
    """Executes server-side apply."""

    def __init__(self, writer: ObjectWriter) -> None:
        self._writer = writer

    def apply(
        self, write: WriteTarget, live: StoredObject | None, body: bytes, *, force: bool
    ) -> WriteOutcome:
        """Apply a configuration; create the object where it does not exist."""
        kind = write.kind
        desired = _parse_configuration(write, body)
        if live is None:
            if write.subresource:
                raise not_found(kind, write.name)
            return self._create(write, desired, force=force)

        def merged(stored: JsonObject) -> JsonObject:
            result = self._merge(write, stored, desired, force=force)
            # Without preconditions of the applier, the live values always match.
            current = {"uid": live.uid, "resourceVersion": str(live.revision)}
            fence = {name: desired["metadata"].get(name) or current[name] for name in current}
            return {**result, "metadata": {**result["metadata"], **fence}}

        return self._writer.update(write, live, merged, applied=True)

    def _create(self, write: WriteTarget, desired: JsonObject, *, force: bool) -> WriteOutcome:
        uid = desired["metadata"].get("uid")
        if uid:
            raise conflict(
                write.kind,
                write.name,
                f"uid mismatch: the provided object specified uid {uid}, and no existing object "
                "was found",
            )
        created = self._merge(write, None, desired, force=force)
        metadata = {**created["metadata"], "name": write.name}
        return self._writer.create(write, {**created, "metadata": metadata}, applied=created)

    def _merge(
        self, write: WriteTarget, live: JsonObject | None, desired: JsonObject, *, force: bool
    ) -> JsonObject:
        return apply(
            live,
            _writable(write, desired),
            manager=write.manager,
            force=force,
            api_version=write.kind.api_version,
            subresource=write.subresource,
            time=self._writer.now(),
            shape=write.kind.shape,
        )


def _writable(write: WriteTarget, desired: Mapping[str, Any]) -> JsonObject:
    """Return the fields that this path can change and its applier can own."""
    if write.subresource == "status":
        metadata: JsonObject = desired["metadata"]
        if write.kind.custom:
            names = ("name", "namespace", "uid", "resourceVersion", "managedFields")
            metadata = {key: metadata[key] for key in names if key in metadata}
        parts = ("apiVersion", "kind", "status")
        kept = {key: desired[key] for key in parts if key in desired}
        return {**kept, "metadata": metadata}
    if "status" in write.kind.subresources:
        return {key: value for key, value in desired.items() if key != "status"}
    return dict(desired)


def _parse_configuration(write: WriteTarget, body: bytes) -> JsonObject:
    value = parse_json(body)
    if not isinstance(value, dict):
        raise bad_request("an apply patch must be an object, as JSON")
    desired = cast("JsonObject", value)
    version, kind = str(desired.get("apiVersion") or ""), desired.get("kind", "")
    if (version, kind) != (write.kind.api_version, write.kind.kind):
        group, _, number = version.rpartition("/")
        raise bad_request(f"invalid object type: {group}/{number}, Kind={kind}")
    given: Any = desired.get("metadata") or {}
    if not isinstance(given, dict):
        raise bad_request("the metadata of an apply patch must be an object")
    metadata = cast("JsonObject", given)
    name = check_name(write, metadata.get("name") or "")
    set_namespace(write, dict(metadata))
    return {**desired, "metadata": {**metadata, "name": name}}


_PATCH: Final = "$patch"


def json_patch(obj: dict[str, Any], operations: Any) -> dict[str, Any]:
    """Return the object after all operations; the given object is changed."""
    if not isinstance(operations, list):
        raise StatusError(400, "BadRequest", "error decoding patch: it is not a list of operations")
    for operation in cast("list[dict[str, Any]]", operations):
        try:
            _apply_operation(obj, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            message = "the server rejected our request due to an error in our request"
            raise StatusError(422, "Invalid", message, details={}) from error
    return obj


def _apply_operation(obj: Any, operation: Mapping[str, Any]) -> None:
    """Apply one operation; any error in looking up its path makes it inapplicable."""
    steps = [
        step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]
    ]
    for step in steps[:-1]:
        obj = cast("list[Any]", obj)[int(step)] if isinstance(obj, list) else obj[step]
    container, last = obj, steps[-1]
    index: Any = last
    if isinstance(container, list):
        items = cast("list[Any]", container)
        index = len(items) if last == "-" else int(last)
    match operation["op"]:
        case "test" if container[index] == operation.get("value"):
            return
        case "add" if isinstance(container, list):
            cast("list[Any]", container).insert(index, operation.get("value"))
        case "add" | "replace":
            container[index] = operation.get("value")
        case "remove":
            del container[index]
        case op:
            raise ValueError(f"cannot apply {op!r} at {operation['path']!r}")


def merge_patch(obj: Mapping[str, Any], patch: Any) -> dict[str, Any]:
    """Return the object with the entries of the patch; null removes an entry."""
    if not isinstance(patch, dict):
        raise StatusError(400, "BadRequest", "error decoding patch: it is not an object")
    result = dict(obj)
    for name, value in cast("dict[str, Any]", patch).items():
        current = result.get(name)
        if value is None:
            result.pop(name, None)
        elif isinstance(current, dict) and isinstance(value, dict):
            result[name] = merge_patch(cast("dict[str, Any]", current), value)
        else:
            result[name] = value if isinstance(current, dict) else _without_nulls(value)
    return result


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value).items()
        return {name: _without_nulls(entry) for name, entry in entries if entry is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in cast("list[Any]", value)]
    return value


def strategic_patch(obj: Mapping[str, Any], patch: Any, shape: MergeShape) -> dict[str, Any]:
    """Return the object with the entries of the patch, with lists merged by their shape."""
    if not isinstance(patch, dict):
        raise StatusError(400, "BadRequest", "invalid JSON document")
    result = dict(obj)
    for name, value in cast("dict[str, Any]", patch).items():
        current = result.get(name)
        if name.startswith("$"):
            raise _not_simulated(name)
        if value is None:
            result.pop(name, None)
            continue
        below = shape.child(name)
        if below is None:
            message = f"unable to find api field in struct for the json field {name!r}"
            raise StatusError(500, "", message)
        replaces = "replace" in below.strategies
        if isinstance(current, dict) and isinstance(value, dict) and not replaces:
            result[name] = strategic_patch(cast("dict[str, Any]", current), value, below)
        elif isinstance(value, list) and "merge" in below.strategies:
            result[name] = _merged_list(
                cast("list[Any]", current or []), cast("list[Any]", value), below
            )
        else:
            result[name] = value if isinstance(current, dict) else _without_nulls(value)
    return result


def _merged_list(items: list[Any], patch: list[Any], shape: MergeShape) -> list[Any]:
    key = shape.merge_key
    if not key:
        merged = [*items, *(each for each in patch if each not in items)]
        return _in_order(merged, patch, items)
    for change in patch:
        if key not in change:
            message = f"map: {change} does not contain declared merge key: {key}"
            raise StatusError(500, "", message)
        if change.get(_PATCH, "delete") != "delete":
            raise _not_simulated(f"{_PATCH}: {change[_PATCH]}")
    deleted = [change[key] for change in patch if _PATCH in change]
    changes = {change[key]: change for change in patch if _PATCH not in change}
    current = {item.get(key): item for item in items if item.get(key) not in deleted}
    merged = {
        **current,
        **{
            value: strategic_patch(current[value], change, shape.element or ANYTHING)
            if value in current
            else _without_nulls(change)
            for value, change in changes.items()
        },
    }
    return [merged[value] for value in _in_order([*merged], [*changes], [*current])]


def _in_order(merged: list[Any], patch: list[Any], items: list[Any]) -> list[Any]:
    """Order patched values as in the patch; other values stay before those that they preceded."""

    def rank(order: list[Any], value: Any) -> int:
        return order.index(value) if value in order else -1

    patched = sorted((v for v in merged if v in patch), key=patch.index)
    others = sorted((v for v in merged if v not in patch), key=lambda v: rank(items, v))
    result: list[Any] = []
    while patched and others:
        other_first = 0 <= rank(items, others[0]) < rank(items, patched[0])
        result.append(others.pop(0) if other_first else patched.pop(0))
    return result + patched + others


def _not_simulated(directive: str) -> StatusError:
    message = f"this simulated server does not support the directive {directive}"
    return StatusError(501, "NotImplemented", message)
