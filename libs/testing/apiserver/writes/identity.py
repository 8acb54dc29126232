"""Which object a write means: its name, its place, and the state in which it must still be."""

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.status_errors import (
    MODIFIED,
    bad_request,
    conflict,
    invalid,
    invalid_object,
    invalid_value,
)
from libs.testing.apiserver.objects.json_access import JsonObject, pick
from libs.testing.apiserver.objects.shapes import encoded
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.storage.store import StoredObject
from libs.testing.apiserver.writes.outcome import WriteTarget

_KEPT = (
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
    """The metadata without what is empty, so that nobody owns it; built-in kinds get that later."""
    return encoded(metadata, kind.shape.fields["metadata"]) if kind.custom else {**metadata}


def set_namespace(write: WriteTarget, metadata: JsonObject) -> None:
    """Put it where the path says; refused where the object says otherwise."""
    if not write.kind.namespaced:
        metadata.pop("namespace", None)
        return
    if metadata.get("namespace") not in (None, "", write.namespace):
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = write.namespace


def check_name(write: WriteTarget, name: str) -> str:
    """The object's name; refused where it is not the path's."""
    if name not in ("", write.name):
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({write.name})"
        )
    return write.name


def check_identity(write: WriteTarget, new: JsonObject) -> None:
    """What a change makes of an object is that object still."""
    metadata = new["metadata"]
    metadata["name"] = check_name(write, metadata.get("name") or "")
    set_namespace(write, metadata)
    new["kind"], new["apiVersion"] = write.kind.kind, write.kind.api_version


def check_fence(kind: ResourceKind, live: StoredObject, metadata: JsonObject, *, put: bool) -> None:
    """Refuse unless it is the very object, in the very state, that the writer has in mind."""
    uid = metadata.get("uid") or live.uid
    if uid != live.uid and put:
        raise conflict(kind, live.name, _another(kind, live, uid))
    asked = str(metadata.get("resourceVersion") or "")
    if asked and not asked.isdecimal():
        raise StatusError(500, "", f'strconv.ParseUint: parsing "{asked}": invalid syntax')
    if int(asked or 0) == 0:
        if not kind.put_unfenced:
            cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(
                kind.plural, live.name, [cause], group=kind.group, qualified=kind.resource
            )
    elif int(asked) != live.revision:
        raise conflict(kind, live.name, MODIFIED)
    if uid != live.uid:
        cause = invalid_value("metadata.uid", uid, "field is immutable")
        raise invalid_object(kind, live.name, [cause])


def _another(kind: ResourceKind, live: StoredObject, uid: str) -> str:
    folder = "minions" if kind.resource == "nodes" else kind.plural
    key = "/".join(part for part in (folder, live.namespace, live.name) if part)
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, "
        f"UID in object meta: {live.uid}"
    )


def keep_server_fields(metadata: JsonObject, before: JsonObject) -> None:
    """What only the server writes is as it was."""
    metadata.pop("resourceVersion", None)
    for key in _KEPT:
        metadata.pop(key, None)
        metadata |= pick(before, key)
