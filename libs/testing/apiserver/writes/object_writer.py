"""Creates and updates: from what somebody wants of an object to what is stored of it.

Between reading an object and storing the next one nothing is awaited: that is what makes
resourceVersions a fence. Knows nothing of requests; which change is wanted, the caller says as a
function.
"""

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from libs.runtime.clock import Clock
from libs.runtime.ids import Ids
from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.names import validate_metadata
from libs.testing.apiserver.kinds.status_errors import already_exists, invalid_object
from libs.testing.apiserver.kinds.strategies import KindStrategy
from libs.testing.apiserver.objects import managed_fields
from libs.testing.apiserver.objects.encoding import decoded, encoded, ordered
from libs.testing.apiserver.objects.json_access import JsonObject, get_map, pick
from libs.testing.apiserver.objects.shapes import encoded as typed
from libs.testing.apiserver.storage.store import Store, StoredObject
from libs.testing.apiserver.writes import identity
from libs.testing.apiserver.writes.admission import CreateAdmission
from libs.testing.apiserver.writes.outcome import Strategies, WriteOutcome, WriteTarget


class ObjectWriter:
    """Writes into a store, by the strategies of its kinds."""

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
        self._births = CreateAdmission(store, strategies=strategies, ids=ids, random=random)

    def time(self) -> float:
        """Unix seconds."""
        return self._clock.now()

    def now(self) -> str:
        """As objects have it."""
        return format_time(self.time())

    def create(
        self, write: WriteTarget, thing: JsonObject, *, applied: JsonObject | None = None
    ) -> WriteOutcome:
        """A new object; `applied` is what an apply made of it, owners and all."""
        kind, strategy = write.kind, self._strategies(write.kind)
        self._births.check_namespace(write)
        born = self._births.new_metadata(write, thing["metadata"], now=self.now())
        thing = {**thing, "metadata": born}
        status = thing.pop("status", None) if _status_apart(kind) else None
        thing = self._filled(kind, strategy, thing)
        if applied is None:
            thing = self._tracked(write, None, thing)
        else:
            thing["metadata"]["managedFields"] = applied["metadata"].get("managedFields")
        metadata = thing["metadata"]
        if kind.generations:
            metadata["generation"] = 1
        if status is not None and strategy.keeps_status:
            thing["status"] = status
        strategy.prepare_for_create(thing)
        self._births.admit(write, thing)
        thing = typed(thing, kind.shape)
        self._judge(kind, strategy, thing, None)
        if self._store.of_kind(kind).get(write.namespace, metadata["name"]) is not None:
            raise already_exists(kind, metadata["name"])
        return self._stored(write, thing, None, code=201)

    def update(
        self,
        write: WriteTarget,
        live: StoredObject,
        change: Callable[[JsonObject], JsonObject],
        *,
        put: bool = False,
        applied: bool = False,
    ) -> WriteOutcome:
        """The object after a change; nothing is stored where that is none.

        `put` is for whoever brings the whole object; `applied` where the change has seen to owners.
        """
        kind, strategy = write.kind, self._strategies(write.kind)
        old = self._as_version(kind, live)
        new = change(self._as_version(kind, live))
        new = {**new, "metadata": identity.drop_empty(kind, get_map(new, "metadata"))}
        identity.check_identity(write, new)
        identity.check_fence(kind, live, new["metadata"], put=put)
        owners = new["metadata"].get("managedFields") if applied else None
        new = self._filled(kind, strategy, new)
        new = self._carried(write, strategy, new, old)
        if not applied:
            new = self._tracked(write, old, new)
        else:
            new["metadata"]["managedFields"] = owners
            new = managed_fields.with_entries(typed(new, kind.shape), owners)
        self._count(write, strategy, new, old)
        if _same(new, old):
            return self._unchanged(live, old)
        self._judge(kind, strategy, new, old)
        if _doomed(new["metadata"]) and not strategy.has_finalizers(new):
            return self._released(write, live, new, old)
        return self._stored(write, new, live, before=old)

    def remove(
        self, write: WriteTarget, live: StoredObject, *, code: int = 200, raw: bytes = b""
    ) -> WriteOutcome:
        """The object is gone; the body is `raw`, or else the object as it is last seen."""
        before = decoded(live.raw)
        last, revision = live.raw, live.revision
        if not write.dry_run:
            change = self._store.remove(write.kind, live)
            last, revision = change.deleted_object(), change.revision
        return WriteOutcome(
            code=code,
            raw=raw or last,
            bare=bool(raw),
            name=live.name,
            uid=live.uid,
            revision=0 if raw else revision,
            gone=True,
            before=before,
        )

    def put(self, write: WriteTarget, live: StoredObject, thing: JsonObject) -> WriteOutcome:
        """Store what the server itself made of an object: no fence, no owners, no judgement."""
        before = decoded(live.raw)
        if _same(thing, before):
            return self._unchanged(live, before)
        return self._stored(write, thing, live, before=before)

    def mark(self, write: WriteTarget, live: StoredObject, thing: JsonObject) -> StoredObject:
        """Store a step on the way to what was asked for."""
        named = {**thing, "apiVersion": _storage(write.kind)}
        return self._store.put(write.kind, typed(named, write.kind.shape), before=live)

    def _filled(self, kind: ResourceKind, strategy: KindStrategy, thing: JsonObject) -> JsonObject:
        if kind.schema is not None:
            thing = kind.schema.default(kind.schema.prune(thing))
        strategy.set_defaults(thing)
        return thing

    def _carried(
        self, write: WriteTarget, strategy: KindStrategy, new: JsonObject, old: JsonObject
    ) -> JsonObject:
        """What this write may not change is as it was."""
        metadata, before = new["metadata"], old["metadata"]
        if write.subresource == "status":
            theirs = metadata if strategy.shares_metadata else before
            new = {**old, "metadata": dict(theirs), **pick(new, "status")}
            new["metadata"]["managedFields"] = metadata.get("managedFields")
            metadata = new["metadata"]
        elif write.subresource == "finalize":
            new = {**old, "metadata": metadata, **pick(new, "spec")}
        else:
            strategy.prepare_for_update(new, old)
            if _status_apart(write.kind):
                new.pop("status", None)
                new |= pick(old, "status")
        identity.keep_server_fields(metadata, before)
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

    def _count(
        self, write: WriteTarget, strategy: KindStrategy, new: JsonObject, old: JsonObject
    ) -> None:
        if not write.kind.generations or write.subresource == "status":
            return
        if strategy.generation_fields(new) != strategy.generation_fields(old):
            new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1

    def _judge(
        self, kind: ResourceKind, strategy: KindStrategy, new: JsonObject, old: JsonObject | None
    ) -> None:
        was = None if old is None else old["metadata"]
        causes = validate_metadata(new["metadata"], old=was)
        if old is not None:
            causes += strategy.validate_update(new, old)
        causes += strategy.validate(new)
        if kind.schema is not None:
            causes += kind.schema.validate(new, old)
        if causes:
            raise invalid_object(kind, new["metadata"]["name"], causes)

    def _released(
        self, write: WriteTarget, live: StoredObject, new: JsonObject, old: JsonObject
    ) -> WriteOutcome:
        """Its last finalizer is gone, and so is the object: the answer does not show that."""
        new["metadata"]["resourceVersion"] = str(live.revision)
        gone = self.remove(write, live, raw=encoded(ordered(new)))
        revision = live.revision
        return msgspec.structs.replace(gone, bare=False, revision=revision, before=old, after=new)

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
        thing: JsonObject,
        live: StoredObject | None,
        *,
        code: int = 200,
        before: JsonObject | None = None,
    ) -> WriteOutcome:
        kind = write.kind
        thing = {**thing, "apiVersion": _storage(kind)}
        if write.dry_run:
            if live is not None:
                kept = {**thing["metadata"], "resourceVersion": str(live.revision)}
                thing["metadata"] = kept
            raw, revision = encoded(ordered(thing)), 0
        else:
            stored = self._store.put(kind, thing, before=live)
            raw, revision = stored.raw, stored.revision
        metadata = thing["metadata"]
        return WriteOutcome(
            code=code,
            raw=raw,
            name=metadata["name"],
            uid=metadata["uid"],
            revision=revision,
            before=before,
            after=thing,
        )

    def _as_version(self, kind: ResourceKind, live: StoredObject) -> JsonObject:
        return {**decoded(live.raw), "apiVersion": kind.api_version}


def format_time(time: float) -> str:
    """A time as objects have it, in whole seconds."""
    return datetime.fromtimestamp(int(time), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _status_apart(kind: ResourceKind) -> bool:
    return "status" in kind.subresources


def _storage(kind: ResourceKind) -> str:
    return kind.stored_as or kind.api_version


def _same(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """But for the revision, which only a store gives."""
    if {**new, "metadata": None, "apiVersion": ""} != {**old, "metadata": None, "apiVersion": ""}:
        return False
    return _bare(new["metadata"]) == _bare(old["metadata"])


def _bare(metadata: Mapping[str, Any]) -> JsonObject:
    return {key: value for key, value in metadata.items() if key != "resourceVersion" and value}


def _doomed(metadata: Mapping[str, Any]) -> bool:
    """Whether only its finalizers keep it."""
    return bool(
        metadata.get("deletionTimestamp") and not metadata.get("deletionGracePeriodSeconds")
    )
