"""Checks that a write is meant for the object, and for the revision, that it finds."""

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.status_errors import (
    MODIFIED,
    bad_request,
    conflict,
    invalid,
    invalid_object,
)
from libs.testing.apiserver.objects.json_access import JsonObject, pick
from libs.testing.apiserver.objects.shapes import encoded
from libs.testing.apiserver.schemas import causes
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.storage.store import StoredObject
from libs.testing.apiserver.writes.outcome import WriteTarget

_SERVER_FIELDS = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)


def drop_empty(kind: ResourceKind, metadata: JsonObject) -> JsonObject:
    """Return the metadata without empty fields; built-in kinds drop theirs when encoded."""
    return encoded(metadata, kind.shape.fields["metadata"]) if kind.custom else {**metadata}


def set_namespace(write: WriteTarget, metadata: JsonObject) -> None:
    """Set the namespace of the path; refuse an object that names another."""
    if not write.kind.namespaced:
        metadata.pop("namespace", None)
        return
    if metadata.get("namespace") not in (None, "", write.namespace):
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = write.namespace


def check_name(write: WriteTarget, name: str) -> str:
    """Return the name of the path; refuse an object that has another."""
    if name not in ("", write.name):
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({write.name})"
        )
    return write.name


def check_identity(write: WriteTarget, new: JsonObject) -> None:
    """Refuse a change of name, namespace or kind."""
    metadata = new["metadata"]
    metadata["name"] = check_name(write, metadata.get("name") or "")
    set_namespace(write, metadata)
    new["kind"], new["apiVersion"] = write.kind.kind, write.kind.api_version


def check_fence(kind: ResourceKind, live: StoredObject, metadata: JsonObject, *, put: bool) -> None:
    """Refuse another uid or resourceVersion than the writer names."""
    uid = metadata.get("uid") or live.uid
    if uid != live.uid and put:
        raise conflict(kind, live.name, _uid_mismatch(kind, live, uid))
    version = str(metadata.get("resourceVersion") or "")
    if version and not version.isdecimal():
        raise StatusError(500, "", f'strconv.ParseUint: parsing "{version}": invalid syntax')
    if int(version or 0) == 0:
        if not kind.put_unfenced:
            cause = causes.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(
                kind.plural, live.name, [cause], group=kind.group, qualified=kind.resource
            )
    elif int(version) != live.revision:
        raise conflict(kind, live.name, MODIFIED)
    if uid != live.uid:
        cause = causes.invalid("metadata.uid", uid, "field is immutable")
        raise invalid_object(kind, live.name, [cause])


def _uid_mismatch(kind: ResourceKind, live: StoredObject, uid: str) -> str:
    folder = "minions" if kind.resource == "nodes" else kind.plural
    key = "/".join(part for part in (folder, live.namespace, live.name) if part)
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, "
        f"UID in object meta: {live.uid}"
    )


def keep_server_fields(metadata: JsonObject, before: JsonObject) -> None:
    """Restore the metadata that only the server writes."""
    metadata.pop("resourceVersion", None)
    for key in _SERVER_FIELDS:
        metadata.pop(key, None)
        metadata |= pick(before, key)
