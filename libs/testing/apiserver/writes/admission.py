"""Admission of writes: namespace, name, identity, fence, and a pod's service account."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from libs.runtime.env import Ids
from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.status_errors import (
    MODIFIED,
    already_exists,
    bad_request,
    conflict,
    invalid_object,
    invalid_request,
    namespace_not_found,
)
from libs.testing.apiserver.kinds.strategies import (
    KindStrategy,
    account_name,
    mount_service_account,
)
from libs.testing.apiserver.objects.json import JsonObject, decoded, pick
from libs.testing.apiserver.objects.shapes import encoded
from libs.testing.apiserver.status import StatusError, invalid, required
from libs.testing.apiserver.store import Store, StoredObject

Strategies = Callable[[ResourceKind], KindStrategy]


class WriteTarget(msgspec.Struct, frozen=True, kw_only=True):
    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    manager: str


class WriteOutcome(msgspec.Struct, frozen=True, kw_only=True):
    code: int = 200
    raw: bytes
    """The body of the response."""
    is_status_body: bool = False
    """Whether the body is not an object of the kind, but e.g. a Status."""
    name: str = ""
    uid: str = ""
    revision: int = 0
    """The revision of the object in the response, or 0."""
    is_deleted: bool = False
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    """The object in the response."""


_FIELDS_OF_SERVER = (
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
)
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_MAX_NAME_TRIES = 8


class CreateAdmission:
    def __init__(
        self, store: Store, *, strategies: Strategies, ids: Ids, random: random.Random
    ) -> None:
        self._store = store
        self._strategies = strategies
        self._ids = ids
        self._random = random

    def check_namespace(self, write: WriteTarget) -> None:
        """Refuse a namespace that does not exist."""
        kind = write.kind
        if not kind.namespaced:
            return
        namespaces = self._store.namespace_store()
        if namespaces.get("", write.namespace) is None:
            raise namespace_not_found(write.namespace)

    def new_metadata(self, write: WriteTarget, given: Mapping[str, Any], *, now: str) -> JsonObject:
        """Return the metadata with name, uid and creation time."""
        kind = write.kind
        metadata = drop_empty(kind, {k: v for k, v in given.items() if k not in _FIELDS_OF_SERVER})
        if given.get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        set_namespace(write, metadata)
        name, prefix = metadata.get("name") or "", metadata.get("generateName") or ""
        if not name and not prefix:
            cause = required("metadata.name", "name or generateName is required")
            raise invalid_object(kind, "", [cause])
        metadata["name"] = name or self._generated(write, prefix)
        if why := self._strategies(kind).validate_name(metadata["name"]):
            cause = invalid("metadata.name", metadata["name"], why)
            raise invalid_object(kind, metadata["name"], [cause])
        metadata["uid"] = _uid(self._ids.new())
        metadata["creationTimestamp"] = now
        return metadata

    def admit(self, write: WriteTarget, obj: JsonObject) -> None:
        """Mount the service account of a pod, whether or not the account exists."""
        if write.kind.resource != "pods":
            return
        name = account_name(obj)
        account = self._store.account_store().get(write.namespace, name)
        given = {} if account is None else decoded(account.raw)
        mount_service_account(obj, as_=name, account=given, suffix=self._suffix())

    def _generated(self, write: WriteTarget, prefix: str) -> str:
        store = self._store.of_kind(write.kind)
        for _ in range(_MAX_NAME_TRIES):
            name = prefix[:58] + self._suffix()
            if store.get(write.namespace, name) is None:
                return name
        raise already_exists(write.kind, f"{prefix}*")

    def _suffix(self) -> str:
        return "".join(self._random.choice(_LETTERS) for _ in range(5))


def _uid(digits: str) -> str:
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(parts)


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
        if not kind.put_without_revision:
            cause = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid_request(
                kind.plural, live.name, [cause], group=kind.group, qualified=kind.resource
            )
    elif int(version) != live.revision:
        raise conflict(kind, live.name, MODIFIED)
    if uid != live.uid:
        cause = invalid("metadata.uid", uid, "field is immutable")
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
