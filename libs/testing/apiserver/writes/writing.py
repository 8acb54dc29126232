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
from libs.testing.apiserver.kinds import Kind
from libs.testing.apiserver.kinds.names import metadata_flaws
from libs.testing.apiserver.kinds.refusals import (
    exists,
    invalid_object,
)
from libs.testing.apiserver.kinds.strategies import Strategy
from libs.testing.apiserver.objects import managed
from libs.testing.apiserver.objects.encoding import decoded, encoded, ordered
from libs.testing.apiserver.objects.parts import Thing, kept, part
from libs.testing.apiserver.objects.shapes import encoded as typed
from libs.testing.apiserver.storage.store import Store, Stored
from libs.testing.apiserver.writes import Outcome, Strategies, Write, identity
from libs.testing.apiserver.writes.births import Births


class Writer:
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
        self._births = Births(store, strategies=strategies, ids=ids, random=random)

    def time(self) -> float:
        """Unix seconds."""
        return self._clock.now()

    def now(self) -> str:
        """As objects have it."""
        return stamp(self.time())

    def create(self, write: Write, thing: Thing, *, applied: Thing | None = None) -> Outcome:
        """A new object; `applied` is what an apply made of it, owners and all."""
        kind, strategy = write.kind, self._strategies(write.kind)
        self._births.enter(write)
        born = self._births.metadata(write, thing["metadata"], now=self.now())
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
        strategy.begin(thing)
        self._births.admit(write, thing)
        thing = typed(thing, kind.shape)
        self._judge(kind, strategy, thing, None)
        if self._store.shelf(kind).get(write.namespace, metadata["name"]) is not None:
            raise exists(kind, metadata["name"])
        return self._stored(write, thing, None, code=201)

    def update(
        self,
        write: Write,
        live: Stored,
        change: Callable[[Thing], Thing],
        *,
        put: bool = False,
        applied: bool = False,
    ) -> Outcome:
        """The object after a change; nothing is stored where that is none.

        `put` is for whoever brings the whole object; `applied` where the change has seen to owners.
        """
        kind, strategy = write.kind, self._strategies(write.kind)
        old = self._as_version(kind, live)
        new = change(self._as_version(kind, live))
        new = {**new, "metadata": identity.plain(kind, part(new, "metadata"))}
        identity.same(write, new)
        identity.fence(kind, live, new["metadata"], put=put)
        owners = new["metadata"].get("managedFields") if applied else None
        new = self._filled(kind, strategy, new)
        new = self._carried(write, strategy, new, old)
        if not applied:
            new = self._tracked(write, old, new)
        else:
            new["metadata"]["managedFields"] = owners
            new = managed.with_entries(typed(new, kind.shape), owners)
        self._count(write, strategy, new, old)
        if _same(new, old):
            return self._unchanged(live, old)
        self._judge(kind, strategy, new, old)
        if _doomed(new["metadata"]) and not strategy.held(new):
            return self._released(write, live, new, old)
        return self._stored(write, new, live, before=old)

    def remove(self, write: Write, live: Stored, *, code: int = 200, raw: bytes = b"") -> Outcome:
        """The object is gone; the body is `raw`, or else the object as it is last seen."""
        before = decoded(live.raw)
        last, revision = live.raw, live.revision
        if not write.dry_run:
            change = self._store.remove(write.kind, live)
            last, revision = change.gone(), change.revision
        return Outcome(
            code=code,
            raw=raw or last,
            bare=bool(raw),
            name=live.name,
            uid=live.uid,
            revision=0 if raw else revision,
            gone=True,
            before=before,
        )

    def put(self, write: Write, live: Stored, thing: Thing) -> Outcome:
        """Store what the server itself made of an object: no fence, no owners, no judgement."""
        before = decoded(live.raw)
        if _same(thing, before):
            return self._unchanged(live, before)
        return self._stored(write, thing, live, before=before)

    def mark(self, write: Write, live: Stored, thing: Thing) -> Stored:
        """Store a step on the way to what was asked for."""
        named = {**thing, "apiVersion": _storage(write.kind)}
        return self._store.put(write.kind, typed(named, write.kind.shape), before=live)

    def _filled(self, kind: Kind, strategy: Strategy, thing: Thing) -> Thing:
        if kind.schema is not None:
            thing = kind.schema.default(kind.schema.prune(thing))
        strategy.fill(thing)
        return thing

    def _carried(self, write: Write, strategy: Strategy, new: Thing, old: Thing) -> Thing:
        """What this write may not change is as it was."""
        metadata, before = new["metadata"], old["metadata"]
        if write.subresource == "status":
            theirs = metadata if strategy.shares_metadata else before
            new = {**old, "metadata": dict(theirs), **kept(new, "status")}
            new["metadata"]["managedFields"] = metadata.get("managedFields")
            metadata = new["metadata"]
        elif write.subresource == "finalize":
            new = {**old, "metadata": metadata, **kept(new, "spec")}
        else:
            strategy.carry(new, old)
            if _status_apart(write.kind):
                new.pop("status", None)
                new |= kept(old, "status")
        identity.keep(metadata, before)
        return new

    def _tracked(self, write: Write, old: Thing | None, new: Thing) -> Thing:
        return managed.track(
            old,
            new,
            manager=write.manager,
            api_version=write.kind.api_version,
            subresource=write.subresource,
            time=self.now(),
            shape=write.kind.shape,
        )

    def _count(self, write: Write, strategy: Strategy, new: Thing, old: Thing) -> None:
        if not write.kind.generations or write.subresource == "status":
            return
        if strategy.wanted(new) != strategy.wanted(old):
            new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1

    def _judge(self, kind: Kind, strategy: Strategy, new: Thing, old: Thing | None) -> None:
        was = None if old is None else old["metadata"]
        causes = metadata_flaws(new["metadata"], old=was)
        if old is not None:
            causes += strategy.breaches(new, old)
        causes += strategy.flaws(new)
        if kind.schema is not None:
            causes += kind.schema.validate(new, old)
        if causes:
            raise invalid_object(kind, new["metadata"]["name"], causes)

    def _released(self, write: Write, live: Stored, new: Thing, old: Thing) -> Outcome:
        """Its last finalizer is gone, and so is the object: the answer does not show that."""
        new["metadata"]["resourceVersion"] = str(live.revision)
        gone = self.remove(write, live, raw=encoded(ordered(new)))
        revision = live.revision
        return msgspec.structs.replace(gone, bare=False, revision=revision, before=old, after=new)

    def _unchanged(self, live: Stored, old: Thing) -> Outcome:
        return Outcome(
            raw=live.raw,
            name=live.name,
            uid=live.uid,
            revision=live.revision,
            before=old,
            after=old,
        )

    def _stored(
        self,
        write: Write,
        thing: Thing,
        live: Stored | None,
        *,
        code: int = 200,
        before: Thing | None = None,
    ) -> Outcome:
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
        return Outcome(
            code=code,
            raw=raw,
            name=metadata["name"],
            uid=metadata["uid"],
            revision=revision,
            before=before,
            after=thing,
        )

    def _as_version(self, kind: Kind, live: Stored) -> Thing:
        return {**decoded(live.raw), "apiVersion": kind.api_version}


def stamp(time: float) -> str:
    """A time as objects have it, in whole seconds."""
    return datetime.fromtimestamp(int(time), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _status_apart(kind: Kind) -> bool:
    return "status" in kind.subresources


def _storage(kind: Kind) -> str:
    return kind.stored_as or kind.api_version


def _same(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """But for the revision, which only a store gives."""
    if {**new, "metadata": None, "apiVersion": ""} != {**old, "metadata": None, "apiVersion": ""}:
        return False
    return _bare(new["metadata"]) == _bare(old["metadata"])


def _bare(metadata: Mapping[str, Any]) -> Thing:
    return {key: value for key, value in metadata.items() if key != "resourceVersion" and value}


def _doomed(metadata: Mapping[str, Any]) -> bool:
    """Whether only its finalizers keep it."""
    return bool(
        metadata.get("deletionTimestamp") and not metadata.get("deletionGracePeriodSeconds")
    )
