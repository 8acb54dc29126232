"""Admission of new objects: namespace, name, metadata, and a pod's service account."""

import random
from collections.abc import Mapping
from typing import Any

from libs.runtime.env import Ids
from libs.testing.apiserver.kinds import service_accounts
from libs.testing.apiserver.kinds.status_errors import (
    already_exists,
    invalid_object,
    namespace_not_found,
)
from libs.testing.apiserver.objects.encoding import decoded
from libs.testing.apiserver.objects.json_access import JsonObject
from libs.testing.apiserver.schemas.causes import invalid, required
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.storage.store import Store
from libs.testing.apiserver.writes import identity
from libs.testing.apiserver.writes.outcome import Strategies, WriteTarget

_SERVER_FIELDS = (
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
        """Refuse a namespace that does not exist or is being deleted."""
        kind = write.kind
        if not kind.namespaced:
            return
        namespaces = self._store.namespace_store()
        namespace = namespaces.get("", write.namespace)
        if namespace is None:
            raise namespace_not_found(write.namespace)
        if decoded(namespace.raw)["metadata"].get("deletionTimestamp"):
            raise StatusError(
                403,
                "Forbidden",
                f'{kind.resource} "{write.name}" is forbidden: unable to create new content in '
                f"namespace {write.namespace} because it is being terminated",
                details={"name": write.name, "kind": kind.plural},
                causes=[
                    {
                        "reason": "NamespaceTerminating",
                        "message": f"namespace {write.namespace} is being terminated",
                        "field": "metadata.namespace",
                    }
                ],
            )

    def new_metadata(self, write: WriteTarget, given: Mapping[str, Any], *, now: str) -> JsonObject:
        """Return the metadata with name, uid and creation time."""
        kind = write.kind
        metadata = identity.drop_empty(
            kind, {k: v for k, v in given.items() if k not in _SERVER_FIELDS}
        )
        if given.get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        identity.set_namespace(write, metadata)
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

    def admit(self, write: WriteTarget, thing: JsonObject) -> None:
        """Mount the service account of a pod, whether or not the account exists."""
        if write.kind.resource != "pods":
            return
        name = service_accounts.account_name(thing)
        account = self._store.account_store().get(write.namespace, name)
        given = {} if account is None else decoded(account.raw)
        service_accounts.mount_service_account(
            thing, as_=name, account=given, suffix=self._suffix()
        )

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
