"""List and watch: all objects of a kind, then each change.

The reflector resumes at its last revision, lists again where the server has lost its history, and
backs off; no error ends it.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Generic, TypeVar, Unpack

from libs.kube.client import Kube
from libs.kube.errors import (
    Gone,
    KubeError,
    MalformedResponse,
    TimedOut,
    Unavailable,
    UnknownKind,
    status_error,
)
from libs.kube.reads import NamedObject, UnreadableObject, selected
from libs.kube.requests import JSON, METADATA, unknown_kind_errors
from libs.kube.resources import Resource, Selection
from libs.kube.updates import Bookmark, Changed, Deleted, Listed, Unread, Update
from libs.kube.views import Object
from libs.kube.watch import (
    BookmarkEvent,
    DeletedEvent,
    ErrorEvent,
    IdleTimeout,
    LineBuffer,
    WireEvent,
    event_decoder,
    parse_revision,
    require_revisions,
)
from libs.runtime.clock import Backoff
from libs.runtime.env import Env

V = TypeVar("V", bound=Object)

log = logging.getLogger("sluice.kube")

WATCH_SECONDS = (240.0, 360.0)
"""Range in seconds of a watch's requested duration, random so that a fleet's watches do not align.
"""

SILENCE_GRACE = 15.0
"""Seconds after its requested end at which a silent watch counts as dead."""

BACKOFF_RESET_SECONDS = 60.0
"""A watch that lived so many seconds resets the back-off."""

MAX_RETRY_AFTER = 60.0
"""Upper limit in seconds of the server's Retry-After."""

_MAX_OLDER_LISTS = 2
"""Lists in a row older than the known revision that count as a lagging server; with one more, the
cluster was restored to an earlier state.
"""


_NAMED = event_decoder(NamedObject)


class Reflector(Generic[V]):
    """List and watch of one kind, optionally restricted by namespace and selectors."""

    def __init__(
        self,
        kube: Kube,
        resource: Resource[V],
        *,
        env: Env,
        **selection: Unpack[Selection],
    ) -> None:
        self._kube = kube
        self._resource = resource
        self._clock = env.clock
        self._random = env.random
        self._selection = selection
        self._path, _ = selected(resource, selection)
        self._description = f"watch {self._path}"
        self._decoder = event_decoder(resource.view)
        self._backoff = Backoff(env.random)
        self._revision = 0
        self._seen = 0
        self._list_wanted = True
        self._older_lists = 0
        self._idle_timeout: IdleTimeout | None = None
        self._opened_at: float | None = None
        self.problem = ""
        """Why the kind is not watched, in one line; empty while it is."""
        self.current = False
        """Whether the updates are current: a resumed watch begins with old ones."""
        self.is_served = True
        """False while the server does not know the kind."""

    async def updates(self) -> AsyncGenerator[Update[V]]:
        """Iterate over updates from the last revision, or from a list. Close the iterator
        (`aclosing`).
        """
        while True:
            clean = False
            at_least = 0.0
            try:
                if self._list_wanted:
                    yield await self._list()
                async with aclosing(self._follow()) as updates:
                    async for update in updates:
                        yield update
                clean = True
            except _RelistRequested:
                continue
            except KubeError as error:
                if isinstance(error, Gone | MalformedResponse):
                    self._list_wanted = True
                at_least = min(error.retry_after or 0.0, MAX_RETRY_AFTER)
                self._set_problem(str(error))
                self.is_served = not isinstance(error, UnknownKind)
            await self._pause(clean=clean, at_least=at_least)

    def relist(self) -> None:
        """Interrupt the watch and list again."""
        self._list_wanted = True
        if self._idle_timeout is not None:
            self._idle_timeout.abort(self._relist_requested())

    def advance(self, revision: int) -> None:
        """Skip updates up to this revision, which the owner has from another source."""
        self._revision = max(self._revision, revision)

    async def _list(self) -> Listed[V]:
        """List the current state, never the server's cache, so that the result proves the state."""
        requested_at = self._clock.monotonic()
        known = self._revision
        self._list_wanted = False
        try:
            listed = await self._kube.list_all(self._resource, **self._selection)
            revision = parse_revision(listed.resource_version, tried=self._description)
            require_revisions(listed.items, tried=self._description)
            taken_back = revision < known
            if taken_back and self._older_lists < _MAX_OLDER_LISTS:
                self._older_lists += 1
                raise self._went_back(f"a list is as of revision {revision}", known)
        except BaseException:
            self._list_wanted = True
            raise
        self._older_lists = 0
        self.is_served = True
        self._seen = revision
        self._revision = revision if taken_back else max(self._revision, revision)
        return Listed(
            items=listed.items,
            unreadable=listed.unreadable,
            revision=revision,
            requested_at=requested_at,
            is_restored=taken_back,
        )

    async def _follow(self) -> AsyncGenerator[Update[V]]:
        self._opened_at = None
        self.current = False
        duration = round(self._random.uniform(*WATCH_SECONDS))
        path, query = selected(
            self._resource,
            self._selection,
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=str(self._revision),
            timeoutSeconds=str(duration),
        )
        async with AsyncExitStack() as stack:
            with unknown_kind_errors(self._resource):
                accept = METADATA if self._resource.metadata_only else JSON
                opening = self._kube.stream(path, query=query, accept=accept)
                response = await stack.enter_async_context(opening)
            timeout = IdleTimeout(seconds=duration + SILENCE_GRACE, clock=self._clock)
            self._idle_timeout = await stack.enter_async_context(timeout)
            stack.callback(setattr, self, "_idle_timeout", None)
            self._opened_at = self._clock.monotonic()
            self._set_problem("")
            self.is_served = True
            chunks = response.chunks()
            stack.push_async_callback(_close, chunks)
            lines = LineBuffer()
            while (chunk := await self._next(chunks, timeout)) is not None:
                for line in lines.feed(chunk):
                    update = self._update(line)
                    if update is not None:
                        yield update
            if lines.has_partial:
                raise Unavailable(
                    self._description, "the connection was cut in the middle of a line"
                )

    async def _next(self, chunks: AsyncIterator[bytes], timeout: IdleTimeout) -> bytes | None:
        """Return the next chunk; None at the end."""
        if self._list_wanted:
            raise self._relist_requested()
        try:
            return await timeout.wait(anext(chunks, None))
        except TimeoutError as error:
            raise TimedOut(self._description, str(error)) from error

    def _update(self, line: bytes) -> Update[V] | None:
        """Return the update; None if it was delivered before (revisions only grow)."""
        event, problem = self._event(line)
        if isinstance(event, ErrorEvent):
            raise status_error(self._description, body=bytes(event.object))
        revision = parse_revision(event.object.metadata.resource_version, tried=self._description)
        if isinstance(event, BookmarkEvent):
            if revision < self._seen:
                raise self._went_back(f"a bookmark is of revision {revision}", self._seen)
            self._seen = revision
            self._revision = max(self._revision, revision)
            self.current = True
            return Bookmark(self._revision)
        self._seen = max(self._seen, revision)
        if revision <= self._revision:
            return None
        self._revision = revision
        if isinstance(event, DeletedEvent):
            return Deleted[V](event.object, revision)
        if problem:
            return Unread(UnreadableObject(event.object.metadata.key, problem), revision)
        return Changed[V](event.object, revision)

    def _event(self, line: bytes) -> tuple[WireEvent[V], str]:
        """Decode an event; of an object that cannot be read its name alone, and why."""
        try:
            return self._decoder.decode(line), ""
        except (ValueError, RecursionError) as error:
            try:
                return _NAMED.decode(line), str(error)
            except (ValueError, RecursionError):
                raise MalformedResponse(
                    self._description, f"a line is not a watch event: {error}"
                ) from error

    def _relist_requested(self) -> "_RelistRequested":
        return _RelistRequested(self._description, "a new list was requested")

    def _went_back(self, observation: str, known: int) -> Gone:
        cause = f"but {known} was seen before: the server lags or the cluster was restored"
        return Gone(self._description, f"{observation}, {cause}")

    def _set_problem(self, why: str) -> None:
        if why == self.problem:
            return
        if why:
            log.warning("cannot watch: %s", why)
        else:
            log.info("watching %s again", self._path)
        self.problem = why

    async def _pause(self, *, clean: bool, at_least: float) -> None:
        lived = 0.0 if self._opened_at is None else self._clock.monotonic() - self._opened_at
        self._opened_at = None
        if lived >= BACKOFF_RESET_SECONDS:
            self._backoff.reset()
            if clean:
                return
        await self._clock.sleep(max(at_least, self._backoff.next()))


class _RelistRequested(KubeError):
    """Ends a watch in favour of a new list."""


async def _close(chunks: AsyncIterator[bytes]) -> None:
    if isinstance(chunks, AsyncGenerator):
        await chunks.aclose()
