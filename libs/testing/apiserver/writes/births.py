"""New objects: whether they may come, what they are called, and what they are given at birth."""

import random
from collections.abc import Mapping
from typing import Any

from libs.runtime.ids import Ids
from libs.testing.apiserver.kinds import accounts
from libs.testing.apiserver.kinds.refusals import (
    exists,
    invalid_object,
    invalid_value,
    no_namespace,
    required,
)
from libs.testing.apiserver.objects.encoding import decoded
from libs.testing.apiserver.objects.parts import Thing
from libs.testing.apiserver.status import Refused
from libs.testing.apiserver.storage.store import Store
from libs.testing.apiserver.writes import Strategies, Write, identity

_SERVERS = (
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
_TRIES = 8


class Births:
    """Of all kinds."""

    def __init__(
        self, store: Store, *, strategies: Strategies, ids: Ids, random: random.Random
    ) -> None:
        self._store = store
        self._strategies = strategies
        self._ids = ids
        self._random = random

    def enter(self, write: Write) -> None:
        """Nothing new comes into a namespace that is not there, or going."""
        kind = write.kind
        if not kind.namespaced:
            return
        namespaces = self._store.namespaces()
        found = namespaces.get("", write.namespace)
        if found is None:
            raise no_namespace(write.namespace)
        if decoded(found.raw)["metadata"].get("deletionTimestamp"):
            raise Refused(
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

    def metadata(self, write: Write, given: Mapping[str, Any], *, now: str) -> Thing:
        """Its name, and all that the server gives it."""
        kind = write.kind
        metadata = identity.plain(kind, {k: v for k, v in given.items() if k not in _SERVERS})
        if given.get("resourceVersion"):
            raise Refused(500, "", "resourceVersion should not be set on objects to be created")
        identity.place(write, metadata)
        name, prefix = metadata.get("name") or "", metadata.get("generateName") or ""
        if not name and not prefix:
            words = "name or generateName is required"
            raise invalid_object(kind, "", [required("metadata.name", words)])
        metadata["name"] = name or self._generated(write, prefix)
        if why := self._strategies(kind).name_flaw(metadata["name"]):
            cause = invalid_value("metadata.name", metadata["name"], why)
            raise invalid_object(kind, metadata["name"], [cause])
        metadata["uid"] = _uid(self._ids.new())
        metadata["creationTimestamp"] = now
        return metadata

    def admit(self, write: Write, thing: Thing) -> None:
        """A pod speaks as somebody; nobody asks whether that account is there."""
        if write.kind.resource != "pods":
            return
        name = accounts.name(thing)
        account = self._store.accounts().get(write.namespace, name)
        given = {} if account is None else decoded(account.raw)
        accounts.speak(thing, as_=name, account=given, suffix=self._suffix())

    def _generated(self, write: Write, prefix: str) -> str:
        shelf = self._store.shelf(write.kind)
        for _ in range(_TRIES):
            name = prefix[:58] + self._suffix()
            if shelf.get(write.namespace, name) is None:
                return name
        raise exists(write.kind, f"{prefix}*")

    def _suffix(self) -> str:
        return "".join(self._random.choice(_LETTERS) for _ in range(5))


def _uid(digits: str) -> str:
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(parts)
