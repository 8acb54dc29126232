"""Patches: a change that is said instead of the whole object, in any of four languages."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.status_errors import (
    bad_request,
    conflict,
    forbidden,
    invalid_options,
    not_found,
    required,
)
from libs.testing.apiserver.objects.apply import apply
from libs.testing.apiserver.objects.json_access import JsonObject
from libs.testing.apiserver.objects.patches import json_patch, merge_patch
from libs.testing.apiserver.objects.strategic_merge import strategic_patch
from libs.testing.apiserver.requests import bodies
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
    """What only an apply may, and must, say."""
    if applies and not manager:
        cause = required("fieldManager", "is required for apply patch")
        raise invalid_options("PatchOptions", [cause])
    if force and not applies:
        cause = forbidden("force", "may not be specified for non-apply patch")
        raise invalid_options("PatchOptions", [cause])


def patch_function(
    content_type: str, body: bytes, kind: ResourceKind
) -> Callable[[JsonObject], JsonObject]:
    """What the patch does to an object."""
    spoken = (JSON_PATCH, MERGE) if kind.custom else (JSON_PATCH, MERGE, STRATEGIC)
    if content_type not in spoken:
        words = (
            "the body of the request was in an unknown format - accepted media types include: "
            f"{', '.join((*spoken, APPLY))}"
        )
        raise StatusError(415, "UnsupportedMediaType", words)
    try:
        said: Any = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request("invalid JSON patch") from error

    def patched(thing: JsonObject) -> JsonObject:
        if content_type == JSON_PATCH:
            result = json_patch(thing, said)
        elif content_type == MERGE:
            result = merge_patch(thing, said)
        else:
            result = strategic_patch(thing, said, kind.shape)
        if not isinstance(cast("Any", result), dict):
            raise bad_request("the patched object would be none")
        return bodies.checked_object(result, kind, thing)

    return patched


class Applier:
    """Server-side apply."""

    def __init__(self, writer: ObjectWriter) -> None:
        self._writer = writer

    def apply(
        self, write: WriteTarget, live: StoredObject | None, body: bytes, *, force: bool
    ) -> WriteOutcome:
        """What a manager wants of an object, which need not be there."""
        kind = write.kind
        wanted = self._wanted(write, body)
        if live is None:
            if write.subresource:
                raise not_found(kind, write.name)
            return self._create(write, wanted, force=force)

        def merged(thing: JsonObject) -> JsonObject:
            result = self._merge(write, thing, wanted, force=force)
            # The guards of whoever applies, or those that always hold.
            guards = {"uid": live.uid, "resourceVersion": str(live.revision)}
            asked = {name: wanted["metadata"].get(name) or guards[name] for name in guards}
            return {**result, "metadata": {**result["metadata"], **asked}}

        return self._writer.update(write, live, merged, applied=True)

    def _create(self, write: WriteTarget, wanted: JsonObject, *, force: bool) -> WriteOutcome:
        uid = wanted["metadata"].get("uid")
        if uid:
            raise conflict(
                write.kind,
                write.name,
                f"uid mismatch: the provided object specified uid {uid}, and no existing object "
                "was found",
            )
        made = self._merge(write, None, wanted, force=force)
        metadata = {**made["metadata"], "name": write.name}
        return self._writer.create(write, {**made, "metadata": metadata}, applied=made)

    def _merge(
        self, write: WriteTarget, live: JsonObject | None, wanted: JsonObject, *, force: bool
    ) -> JsonObject:
        return apply(
            live,
            _writable(write, wanted),
            manager=write.manager,
            force=force,
            api_version=write.kind.api_version,
            subresource=write.subresource,
            time=self._writer.now(),
            shape=write.kind.shape,
        )

    def _wanted(self, write: WriteTarget, body: bytes) -> JsonObject:
        said = bodies.parse_json(body)
        if not isinstance(said, dict):
            raise bad_request("an apply patch must be an object, as JSON")
        wanted = cast("JsonObject", said)
        version, kind = str(wanted.get("apiVersion") or ""), wanted.get("kind", "")
        if (version, kind) != (write.kind.api_version, write.kind.kind):
            group, _, number = version.rpartition("/")
            raise bad_request(f"invalid object type: {group}/{number}, Kind={kind}")
        given: Any = wanted.get("metadata") or {}
        if not isinstance(given, dict):
            raise bad_request("the metadata of an apply patch must be an object")
        metadata = cast("JsonObject", given)
        name = identity.check_name(write, metadata.get("name") or "")
        identity.set_namespace(write, dict(metadata))
        return {**wanted, "metadata": {**metadata, "name": name}}


def _writable(write: WriteTarget, wanted: Mapping[str, Any]) -> JsonObject:
    """What this path can change: nobody comes to own the rest through it."""
    if write.subresource == "status":
        metadata: JsonObject = wanted["metadata"]
        if write.kind.custom:
            names = ("name", "namespace", "uid", "resourceVersion", "managedFields")
            metadata = {key: metadata[key] for key in names if key in metadata}
        parts = ("apiVersion", "kind", "status")
        kept = {key: wanted[key] for key in parts if key in wanted}
        return {**kept, "metadata": metadata}
    if "status" in write.kind.subresources:
        return {key: value for key, value in wanted.items() if key != "status"}
    return dict(wanted)
