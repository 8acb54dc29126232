"""Merge patches, strategic merge patches, and server-side apply."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.status_errors import (
    bad_request,
    conflict,
    invalid_options,
    not_found,
)
from libs.testing.apiserver.objects.apply import apply
from libs.testing.apiserver.objects.json_access import JsonObject
from libs.testing.apiserver.objects.patches import json_patch, merge_patch, strategic_patch
from libs.testing.apiserver.requests import bodies
from libs.testing.apiserver.schemas.causes import forbidden, required
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.storage.store import StoredObject
from libs.testing.apiserver.writes import identity
from libs.testing.apiserver.writes.object_writer import ObjectWriter
from libs.testing.apiserver.writes.outcome import WriteOutcome, WriteTarget

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


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

    def patched(thing: JsonObject) -> JsonObject:
        if content_type == JSON_PATCH:
            result = json_patch(thing, patch)
        elif content_type == MERGE:
            result = merge_patch(thing, patch)
        else:
            result = strategic_patch(thing, patch, kind.shape)
        return bodies.checked_object(result, kind, thing)

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

        def merged(thing: JsonObject) -> JsonObject:
            result = self._merge(write, thing, desired, force=force)
            # The applier's own preconditions, or the live values, which always hold.
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
    """Return the part that this path can change, and that its applier may own."""
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
    value = bodies.parse_json(body)
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
    name = identity.check_name(write, metadata.get("name") or "")
    identity.set_namespace(write, dict(metadata))
    return {**desired, "metadata": {**metadata, "name": name}}
