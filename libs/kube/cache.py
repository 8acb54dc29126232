"""A cache of one kind of objects that follows the server and reports how current it is.

Lookups are answered from memory with immutable views. An object only moves to later revisions,
whether the watch or the response to a write delivers them.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Generic, TypeAlias, TypeVar, Unpack

from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.kube.indexed_store import Change, IndexedStore, IndexFunc, revision_of
from libs.kube.reflector import Reflector
from libs.kube.resources import Resource, Selection
from libs.kube.updates import Bookmark, Changed, Deleted, Listed, Unread, Update
from libs.kube.views import Object
from libs.kube.watch import parse_revision, require_revisions
from libs.runtime.env import Env
from libs.runtime.tasks import bounded

V = TypeVar("V", bound=Object)

_log = logging.getLogger("sluice.kube")

ChangeHandler: TypeAlias = Callable[[V | None, V | None], None]
"""Called with the old and the new object; None before creation and after deletion. Must neither
block nor change the cache.
"""

WATCH_LAG = 1.0
"""Seconds for the watch to reach the revision of a probe before a new list is requested. The watch
of a busy kind reaches it at once; a kind that stays quiet is usually small, so its list is cheap.
"""

PROBE_LIMIT = 20
"""Objects requested by a probe. If there are no more, the probe is a complete list and no wait is
needed; a quiet kind has no events but one bookmark a minute.
"""


class Cache(Generic[V]):
    """Cache of one kind, optionally restricted by namespace and selectors, kept by `run`."""

    def __init__(
        self,
        kube: Kube,
        resource: Resource[V],
        *,
        env: Env,
        indexes: Mapping[str, IndexFunc[V]] | None = None,
        **selection: Unpack[Selection],
    ) -> None:
        self._kube = kube
        self._resource = resource
        self._clock = env.clock
        self._selection = selection
        self._namespace = selection.get("namespace", "")
        self._has_selectors = bool(selection.get("labels") or selection.get("fields"))
        self._reflector = Reflector(kube, resource, env=env, **selection)
        self._store = IndexedStore[V](indexes or {})
        self._handlers: list[ChangeHandler[V]] = []
        self._synced = asyncio.Event()
        self._progressed = asyncio.Event()
        self._lists = 0
        self._proven_at = -math.inf
        self._verify_problem = ""
        self.unreadable: Mapping[str, str] = {}
        """Why an object cannot be read, by key. The cache keeps what it had of it before."""
        self.revision = 0
        """The cache holds everything up to this revision; single objects may be newer."""

    async def run(self) -> None:
        async with aclosing(self._reflector.updates()) as updates:
            async for update in updates:
                self._process(update)

    def get(self, key: str) -> V | None:
        """Return the object by `namespace/name`, or by name alone if it is cluster-scoped."""
        return self._store.get(key)

    def by_index(self, index: str, value: str) -> list[V]:
        return self._store.by_index(index, value)

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[V]:
        return iter(self._store)

    def on_change(self, handler: ChangeHandler[V]) -> Callable[[], None]:
        """Call `handler` for each change from now on, until the returned function is called."""
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler)

    def record_write(self, view: V) -> None:
        """Store the server's response to a write at once, before the watch delivers it.

        An object that is not cached is added only if it is newer than everything the watch has
        delivered: otherwise it has been deleted since. It is never added to a cache with selectors,
        because it may not match them.
        """
        metadata = view.metadata
        selected = not self._has_selectors and self._namespace in ("", metadata.namespace)
        if self._store.get(metadata.key) is not None or (
            selected and revision_of(view) > self.revision
        ):
            self._notify(self._store.put(view))

    async def wait_synced(self) -> None:
        await self._synced.wait()

    @property
    def is_synced(self) -> bool:
        """True once the first list is complete and its handlers have been called."""
        return self._synced.is_set()

    @property
    def age(self) -> float:
        """Seconds since the content was last proven current; infinite before the first list."""
        return self._clock.monotonic() - self._proven_at

    @property
    def problem(self) -> str:
        """Why the cache does not follow the server, in one line; empty if it does."""
        return self._reflector.problem or self._verify_problem

    @property
    def is_served(self) -> bool:
        """False while the server does not know the kind."""
        return self._reflector.is_served

    async def verify_current(self, *, within: float) -> bool:
        """Return whether the cache reaches the server's current revision in time; else see
        `problem`.
        """
        requested_at = self._clock.monotonic()
        try:
            await bounded(self._catch_up(requested_at, within), seconds=within, clock=self._clock)
        except TimeoutError:
            self._verify_problem = (
                f"the watch did not reach the server's revision within {within:g} s"
            )
        except KubeError as error:
            self._verify_problem = f"cannot read the server's current revision: {error}"
        else:
            self._verify_problem = ""
            return True
        return False

    async def _catch_up(self, requested_at: float, within: float) -> None:
        page = await self._kube.list_page(
            self._resource, limit=PROBE_LIMIT, within=within, **self._selection
        )
        latest = parse_revision(page.resource_version, tried=self._resource.path())
        require_revisions(page.items, tried=self._resource.path())
        if latest >= self.revision and not page.continue_token:
            self._reflector.advance(latest)
            listed = Listed(
                items=page.items,
                unreadable=page.unreadable,
                revision=latest,
                requested_at=requested_at,
            )
            self._process(listed)
        elif latest >= self.revision and await self._watch_reaches(latest):
            self._prove(requested_at)
        else:
            # The kind is quiet or the watch is cut off; or, if the cache has the newer revision,
            # the cluster was restored from a backup.
            lists = self._lists
            self._reflector.relist()
            await self._wait_until(lambda: self._lists > lists and self._proven_at >= requested_at)

    async def _watch_reaches(self, revision: int) -> bool:
        wait = self._wait_until(lambda: self.revision >= revision)
        try:
            await bounded(wait, seconds=WATCH_LAG, clock=self._clock)
        except TimeoutError:
            return False
        return True

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._progressed.clear()
            await self._progressed.wait()

    def _process(self, update: Update[V]) -> None:
        match update:
            case Listed(is_restored=True):
                changes = self._store.reset(update.items)
                self.revision = 0
            case Listed() if update.revision < self.revision:
                return  # requested before the last probe, which returned a newer revision
            case Listed():
                kept = {each.key for each in update.unreadable}
                changes = self._store.replace(update.items, at=update.revision, kept=kept)
            case Changed():
                changes = self._store.put(update.object)
            case Deleted():
                changes = self._store.drop(update.object, at=update.revision)
            case Unread():
                changes = []
            case Bookmark():
                changes = []
        self._track_unreadable(update)
        self.revision = max(self.revision, update.revision)
        if isinstance(update, Listed):
            self._lists += 1
            self._prove(update.requested_at)
        elif self._reflector.current:
            self._prove(self._clock.monotonic())
        else:
            self._progressed.set()
        self._notify(changes)
        if self._lists:
            self._synced.set()

    def _track_unreadable(self, update: Update[V]) -> None:
        match update:
            case Listed():
                found = {each.key: each.problem for each in update.unreadable}
            case Unread(each):
                found = {**self.unreadable, each.key: each.problem}
            case Changed() | Deleted():
                found = dict(self.unreadable)
                found.pop(update.object.metadata.key, None)
            case Bookmark():
                return
        for key in found.keys() - self.unreadable.keys():
            _log.warning("cannot read %s %s: %s", self._resource.kind, key, found[key])
        self.unreadable = found

    def _prove(self, at: float) -> None:
        self._proven_at = max(self._proven_at, at)
        self._progressed.set()

    def _notify(self, changes: list[Change[V]]) -> None:
        errors: list[Exception] = []
        for old, new in changes:
            for handler in tuple(self._handlers):
                try:
                    handler(old, new)
                except Exception as error:  # noqa: BLE001  (the other handlers still run)
                    errors.append(error)
        if errors:
            raise errors[0]
