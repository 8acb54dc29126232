"""Create, update and remove objects: defaults, field ownership, validation, storage.

Nothing is awaited between reading an object and storing it, which makes resourceVersion a fence.
"""

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from libs.runtime.clock import Clock
from libs.runtime.env import Ids
from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.names import validate_metadata
from libs.testing.apiserver.kinds.status_errors import already_exists, invalid_object
from libs.testing.apiserver.kinds.strategies import KindStrategy
from libs.testing.apiserver.objects import managed_fields
from libs.testing.apiserver.objects.json import JsonObject, decoded, encoded, get_map, ordered, pick
from libs.testing.apiserver.objects.shapes import encoded as typed
from libs.testing.apiserver.store import Store, StoredObject
from libs.testing.apiserver.writes.admission import (
    CreateAdmission,
    Strategies,
    WriteOutcome,
    WriteTarget,
    check_fence,
    check_identity,
    drop_empty,
    keep_server_fields,
)


class ObjectWriter:
    def __init__(
        self,
        store: Store,
        *,
        strategies: Strategies,
        clock: Clock,
        ids: Ids,
        random: random.Random,
    ) -> None:
        self._store = store
        self._strategies = strategies
        self._clock = clock
        self._admission = CreateAdmission(store, strategies=strategies, ids=ids, random=random)

    def time(self) -> float:
        """Return Unix seconds."""
        return self._clock.now()

    def now(self) -> str:
        """Return the current time in the format of objects."""
        return format_time(self.time())

    def create(
        self, write: WriteTarget, obj: JsonObject, *, applied: JsonObject | None = None
    ) -> WriteOutcome:
        """Create an object; `applied` is the result of an apply, with its field owners."""
        kind, strategy = write.kind, self._strategies(write.kind)
        self._admission.check_namespace(write)
        metadata = self._admission.new_metadata(write, obj["metadata"], now=self.now())
        obj = {**obj, "metadata": metadata}
        status = obj.pop("status", None) if _has_status_subresource(kind) else None
        obj = _with_defaults(kind, strategy, obj)
        if applied is None:
            obj = self._tracked(write, None, obj)
        else:
            obj["metadata"]["managedFields"] = applied["metadata"].get("managedFields")
        metadata = obj["metadata"]
        if kind.generations:
            metadata["generation"] = 1
        if status is not None and strategy.keeps_status:
            obj["status"] = status
        strategy.prepare_for_create(obj)
        self._admission.admit(write, obj)
        obj = typed(obj, kind.shape)
        self._validate(kind, strategy, obj, None)
        if self._store.of_kind(kind).get(write.namespace, metadata["name"]) is not None:
            raise already_exists(kind, metadata["name"])
        return self._stored(write, obj, None, code=201)

    def update(
        self,
        write: WriteTarget,
        live: StoredObject,
        change: Callable[[JsonObject], JsonObject],
        *,
        put: bool = False,
        applied: bool = False,
    ) -> WriteOutcome:
        """Change an object; an unchanged object is not stored.

        `put` marks a replacement of the object, `applied` a change that sets field owners.
        """
        kind, strategy = write.kind, self._strategies(write.kind)
        old = decoded(live.raw)
        new = change(decoded(live.raw))
        new = {**new, "metadata": drop_empty(kind, get_map(new, "metadata"))}
        check_identity(write, new)
        check_fence(kind, live, new["metadata"], put=put)
        owners = new["metadata"].get("managedFields") if applied else None
        new = _with_defaults(kind, strategy, new)
        new = self._restored(write, strategy, new, old)
        if not applied:
            new = self._tracked(write, old, new)
        else:
            new["metadata"]["managedFields"] = owners
            new = managed_fields.with_entries(typed(new, kind.shape), owners)
        self._count_generation(write, strategy, new, old)
        if _same(new, old):
            return self._unchanged(live, old)
        self._validate(kind, strategy, new, old)
        if _deletion_pending(new["metadata"]) and not strategy.has_finalizers(new):
            return self._remove_released(write, live, new, old)
        return self._stored(write, new, live, before=old)

    def remove(
        self, write: WriteTarget, live: StoredObject, *, code: int = 200, raw: bytes = b""
    ) -> WriteOutcome:
        """Remove an object; the body of the response is `raw`, or else the last object."""
        before = decoded(live.raw)
        change = self._store.remove(write.kind, live)
        return WriteOutcome(
            code=code,
            raw=raw or change.deleted_object(),
            is_status_body=bool(raw),
            name=live.name,
            uid=live.uid,
            revision=0 if raw else change.revision,
            is_deleted=True,
            before=before,
        )

    def put(self, write: WriteTarget, live: StoredObject, obj: JsonObject) -> WriteOutcome:
        """Store a change by the server itself, without preconditions, owners and validation."""
        before = decoded(live.raw)
        if _same(obj, before):
            return self._unchanged(live, before)
        return self._stored(write, obj, live, before=before)

    def mark(self, write: WriteTarget, live: StoredObject, obj: JsonObject) -> StoredObject:
        """Store an intermediate step of a request."""
        return self._store.put(write.kind, typed(obj, write.kind.shape), before=live)

    def _restored(
        self, write: WriteTarget, strategy: KindStrategy, new: JsonObject, old: JsonObject
    ) -> JsonObject:
        """Return the new object with the old values of fields that this write may not change."""
        metadata, before = new["metadata"], old["metadata"]
        if write.subresource == "status":
            chosen = metadata if strategy.shares_metadata else before
            new = {**old, "metadata": dict(chosen), **pick(new, "status")}
            new["metadata"]["managedFields"] = metadata.get("managedFields")
            metadata = new["metadata"]
        else:
            strategy.prepare_for_update(new, old)
            if _has_status_subresource(write.kind):
                new.pop("status", None)
                new |= pick(old, "status")
        keep_server_fields(metadata, before)
        return new

    def _tracked(self, write: WriteTarget, old: JsonObject | None, new: JsonObject) -> JsonObject:
        return managed_fields.track(
            old,
            new,
            manager=write.manager,
            api_version=write.kind.api_version,
            subresource=write.subresource,
            time=self.now(),
            shape=write.kind.shape,
        )

    def _count_generation(
        self, write: WriteTarget, strategy: KindStrategy, new: JsonObject, old: JsonObject
    ) -> None:
        if not write.kind.generations or write.subresource == "status":
            return
        if strategy.generation_fields(new) != strategy.generation_fields(old):
            new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1

    def _validate(
        self, kind: ResourceKind, strategy: KindStrategy, new: JsonObject, old: JsonObject | None
    ) -> None:
        old_metadata = None if old is None else old["metadata"]
        causes = validate_metadata(new["metadata"], old=old_metadata)
        if old is not None:
            causes += strategy.validate_update(new, old)
        causes += strategy.validate(new)
        if kind.schema is not None:
            causes += kind.schema.validate(new, old)
        if causes:
            raise invalid_object(kind, new["metadata"]["name"], causes)

    def _remove_released(
        self, write: WriteTarget, live: StoredObject, new: JsonObject, old: JsonObject
    ) -> WriteOutcome:
        """Remove an object without finalizers; the response shows it as still present."""
        new["metadata"]["resourceVersion"] = str(live.revision)
        outcome = self.remove(write, live, raw=encoded(ordered(new)))
        return msgspec.structs.replace(
            outcome, is_status_body=False, revision=live.revision, before=old, after=new
        )

    def _unchanged(self, live: StoredObject, old: JsonObject) -> WriteOutcome:
        return WriteOutcome(
            raw=live.raw,
            name=live.name,
            uid=live.uid,
            revision=live.revision,
            before=old,
            after=old,
        )

    def _stored(
        self,
        write: WriteTarget,
        obj: JsonObject,
        live: StoredObject | None,
        *,
        code: int = 200,
        before: JsonObject | None = None,
    ) -> WriteOutcome:
        stored = self._store.put(write.kind, obj, before=live)
        return WriteOutcome(
            code=code,
            raw=stored.raw,
            name=stored.name,
            uid=stored.uid,
            revision=stored.revision,
            before=before,
            after=obj,
        )


def format_time(time: float) -> str:
    """Format a time in the format of objects, in whole seconds."""
    return datetime.fromtimestamp(int(time), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _has_status_subresource(kind: ResourceKind) -> bool:
    return "status" in kind.subresources


def _with_defaults(kind: ResourceKind, strategy: KindStrategy, obj: JsonObject) -> JsonObject:
    if kind.schema is not None:
        obj = kind.schema.default(kind.schema.prune(obj))
    strategy.set_defaults(obj)
    return obj


def _same(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Compare without the revision."""
    if {**new, "metadata": None} != {**old, "metadata": None}:
        return False
    return _without_revision(new["metadata"]) == _without_revision(old["metadata"])


def _without_revision(metadata: Mapping[str, Any]) -> JsonObject:
    return {key: value for key, value in metadata.items() if key != "resourceVersion" and value}


def _deletion_pending(metadata: Mapping[str, Any]) -> bool:
    """Return whether only finalizers keep the object."""
    return bool(
        metadata.get("deletionTimestamp") and not metadata.get("deletionGracePeriodSeconds")
    )
