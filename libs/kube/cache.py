"""A copy of one kind of objects that follows the server, and says how far it can be relied upon.

Every question is answered from memory, with immutable views. An object moves only to later
revisions, whether the watch tells it or a response to a write of ours. Must know nothing of what
the objects are for.
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Generic, TypeAlias, TypeVar

from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.kube.indexed_store import Change, IndexedStore, IndexFunc, revision_of
from libs.kube.resources import Resource
from libs.kube.views import Object
from libs.kube.watch.reflector import Bookmark, Changed, Deleted, Listed, Reflector, Update
from libs.kube.watch.wire import parse_revision, require_revisions
from libs.runtime.env import Env
from libs.runtime.tasks import bounded

V = TypeVar("V", bound=Object)

ChangeHandler: TypeAlias = Callable[[V | None, V | None], None]
"""Takes what an object was and what it is; None before the first and after the last. Must not
block, nor change the cache."""

WATCH_LAG = 1.0
"""Seconds in which the watch is expected to tell what a probe has seen; then a list is asked for.
Of a kind that changes often a watch does; one that is quiet for so long is small, as a rule."""

PROBE_LIMIT = 20
"""Objects that a probe asks for: where these are all, it is a list, and nothing need be waited
for. Only the bookmarks of a quiet kind would tell it otherwise, one a minute."""


class Cache(Generic[V]):
    """One kind, or the part of it that a namespace and selectors choose; follows while `run`."""

    def __init__(
        self,
        kube: Kube,
        resource: Resource[V],
        *,
        env: Env,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        indexes: Mapping[str, IndexFunc[V]] | None = None,
    ) -> None:
        self._kube = kube
        self._resource = resource
        self._clock = env.clock
        self._part: Mapping[str, Any] = {
            "namespace": namespace,
            "labels": labels,
            "fields": fields,
        }
        self._namespace = namespace
        self._selected = bool(labels or fields)
        self._watch = Reflector(kube, resource, env=env, **self._part)
        self._held = IndexedStore[V](indexes or {})
        self._watchers: list[ChangeHandler[V]] = []
        self._synced = asyncio.Event()
        self._moved = asyncio.Event()
        self._lists = 0
        self._proof = -math.inf
        self._doubt = ""
        self.revision = 0
        """Everything up to this one is in here; what was learned may be newer."""

    async def run(self) -> None:
        """Follow until cancelled."""
        async with aclosing(self._watch.updates()) as updates:
            async for update in updates:
                self._take(update)

    # What is known.

    def get(self, key: str) -> V | None:
        """By `namespace/name`, or by the name alone where there are no namespaces."""
        return self._held.get(key)

    def by_index(self, index: str, value: str) -> list[V]:
        """Those that the index puts under that value."""
        return self._held.by_index(index, value)

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[V]:
        return iter(self._held)

    def on_change(self, handler: ChangeHandler[V]) -> Callable[[], None]:
        """Call `watcher` for each change from now on, until the returned function is called."""
        self._watchers.append(handler)
        return lambda: self._watchers.remove(handler)

    def record_write(self, view: V) -> None:
        """Take in at once what the server answered to a write of ours.

        An object that is not here enters only if it is newer than all that the watch has told:
        else it is deleted by now. And never into a part: it may not belong there.
        """
        held = self._held.get(view.metadata.key)
        if held is not None or (self._belongs(view) and revision_of(view) > self.revision):
            self._tell(self._held.put(view))

    def _belongs(self, view: V) -> bool:
        return not self._selected and self._namespace in ("", view.metadata.namespace)

    # How far it can be relied upon.

    async def wait_synced(self) -> None:
        """Return once everything was listed."""
        await self._synced.wait()

    @property
    def is_synced(self) -> bool:
        """False until everything was listed, and still while the first list is told."""
        return self._synced.is_set()

    @property
    def age(self) -> float:
        """Seconds since something proved that this is how things are; infinite before the first."""
        return self._clock.monotonic() - self._proof

    @property
    def problem(self) -> str:
        """What keeps it from following, in one line; empty while nothing does."""
        return self._watch.problem or self._doubt

    async def verify_current(self, *, within: float) -> bool:
        """Whether this holds everything that the server has now; if not, `why` says more.

        The server is asked for its revision, and that must be reached here in time.
        """
        asked = self._clock.monotonic()
        try:
            await bounded(self._reach(asked, within), seconds=within, clock=self._clock)
        except TimeoutError:
            self._doubt = f"what the server has was not told here within {within:g} s"
        except KubeError as error:
            self._doubt = f"could not ask for the present revision: {error}"
        else:
            self._doubt = ""
            return True
        return False

    async def _reach(self, asked: float, within: float) -> None:
        page = await self._kube.list_page(
            self._resource, limit=PROBE_LIMIT, within=within, **self._part
        )
        there = parse_revision(page.resource_version, tried=self._resource.path())
        require_revisions(page.items, tried=self._resource.path())
        if there >= self.revision and not page.continue_token:
            self._watch.advance(there)
            self._take(Listed(items=page.items, revision=there, requested_at=asked))
        elif there >= self.revision and await self._told(there):
            self._prove(asked)
        else:
            # Quiet, or cut off; or, where ours is the newer revision, a restored cluster.
            lists = self._lists
            self._watch.relist()
            await self._until(lambda: self._lists > lists and self._proof >= asked)

    async def _told(self, revision: int) -> bool:
        reached = self._until(lambda: self.revision >= revision)
        try:
            await bounded(reached, seconds=WATCH_LAG, clock=self._clock)
        except TimeoutError:
            return False
        return True

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._moved.clear()
            await self._moved.wait()

    # What comes in.

    def _take(self, update: Update[V]) -> None:
        match update:
            case Listed(taken_back=True):
                changes = self._held.reset(update.items)
                self.revision = 0
            case Listed() if update.revision < self.revision:
                return  # asked for before the last probe, which was told more
            case Listed():
                changes = self._held.replace(update.items, at=update.revision)
            case Changed():
                changes = self._held.put(update.object)
            case Deleted():
                changes = self._held.drop(update.object, at=update.revision)
            case Bookmark():
                changes = []
        self.revision = max(self.revision, update.revision)
        if isinstance(update, Listed):
            self._lists += 1
            self._prove(update.requested_at)
        elif self._watch.current:
            self._prove(self._clock.monotonic())
        else:
            self._moved.set()
        self._tell(changes)
        if self._lists:
            self._synced.set()

    def _prove(self, at: float) -> None:
        self._proof = max(self._proof, at)
        self._moved.set()

    def _tell(self, changes: list[Change[V]]) -> None:
        errors: list[Exception] = []
        for old, new in changes:
            for watcher in tuple(self._watchers):
                try:
                    watcher(old, new)
                except Exception as error:  # noqa: BLE001  (the others must hear of it all the same)
                    errors.append(error)
        if errors:
            raise errors[0]
