"""List and watch: what a kind of objects is, and then each change of it, for ever.

It resumes where it was, lists again where the server has forgotten, and backs off; none of its
troubles ends it. What is made of the updates (`libs.kube.cache`) is not decided here.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Generic, TypeVar

import msgspec

from libs.kube.client import Kube
from libs.kube.errors import (
    Gone,
    KubeError,
    MalformedResponse,
    TimedOut,
    TooManyRequests,
    Unavailable,
    status_error,
)
from libs.kube.resources import Resource
from libs.kube.responses import unknown_kind_errors
from libs.kube.views import Object
from libs.kube.watch.idle_timeout import IdleTimeout
from libs.kube.watch.wire import (
    BookmarkEvent,
    DeletedEvent,
    ErrorEvent,
    LineBuffer,
    WireEvent,
    event_decoder,
    parse_revision,
    require_revisions,
)
from libs.runtime.backoff import Backoff
from libs.runtime.env import Env

V = TypeVar("V", bound=Object)

log = logging.getLogger("sluice.kube")

WATCH_SECONDS = (240.0, 360.0)
"""Seconds after which the server is asked to end a watch, drawn so that a fleet's do not align."""

SILENCE_GRACE = 15.0
"""Seconds beyond its asked life after which a silent watch is taken for dead."""

BACKOFF_RESET_SECONDS = 60.0
"""A watch that lived so many seconds makes the next failure the first again."""

MAX_RETRY_AFTER = 60.0
"""A server that asks for more seconds than these before the next try is asked earlier."""

_DISBELIEVED = 2
"""So many lists in a row that are older than what was seen are taken for a server that lags; one
more, and the cluster was taken back to an earlier state."""


class Listed(msgspec.Struct, Generic[V], frozen=True, kw_only=True):
    """All objects as of one revision: what is not in it is not there."""

    items: tuple[V, ...]
    revision: int
    requested_at: float
    """When, by the monotonic clock: it is at least as new as that."""
    taken_back: bool = False
    """The cluster was restored to an earlier state: revisions seen before mean nothing now."""


class Changed(msgspec.Struct, Generic[V], frozen=True):
    """An object is new, or other than before."""

    object: V
    revision: int


class Deleted(msgspec.Struct, Generic[V], frozen=True):
    """An object is gone, or is not selected any more; as it was last."""

    object: V
    revision: int


class Bookmark(msgspec.Struct, frozen=True):
    """Everything up to this revision was told."""

    revision: int


Update = Listed[V] | Changed[V] | Deleted[V] | Bookmark


class Reflector(Generic[V]):
    """One kind, or the part of it that a namespace and selectors choose."""

    def __init__(
        self,
        kube: Kube,
        resource: Resource[V],
        *,
        env: Env,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
    ) -> None:
        self._kube = kube
        self._resource = resource
        self._clock = env.clock
        self._random = env.random
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._path = resource.path(namespace=namespace)
        self._tried = f"watch {self._path}"
        self._decoder = event_decoder(resource.view)
        self._backoff = Backoff(env.random)
        self._revision = 0
        self._told = 0
        self._list_wanted = True
        self._older = 0
        self._vigil: IdleTimeout | None = None
        self._opened: float | None = None
        self.problem = ""
        """What is wrong, in one line; empty while it watches."""
        self.current = False
        """Whether what it tells is of now: what a resumed watch begins with is old news."""

    async def updates(self) -> AsyncGenerator[Update[V]]:
        """From where it was left, or from a list. Close it (`aclosing`) where you leave it."""
        while True:
            clean = False
            at_least = 0.0
            try:
                if self._list_wanted:
                    yield await self._list()
                async with aclosing(self._follow()) as followed:
                    async for update in followed:
                        yield update
                clean = True
            except _Asked:
                continue
            except KubeError as error:
                if isinstance(error, Gone | MalformedResponse):
                    self._list_wanted = True
                if isinstance(error, TooManyRequests):
                    at_least = min(error.retry_after or 0.0, MAX_RETRY_AFTER)
                self._say(str(error))
            await self._pause(clean=clean, at_least=at_least)

    def relist(self) -> None:
        """Do not wait for the watch to tell: ask for everything."""
        self._list_wanted = True
        if self._vigil is not None:
            self._vigil.abort(self._asked())

    def advance(self, revision: int) -> None:
        """Its owner knows everything up to that revision from elsewhere."""
        self._revision = max(self._revision, revision)

    async def _list(self) -> Listed[V]:
        """Always as of now, never what the server has at hand: so it is a proof."""
        asked = self._clock.monotonic()
        known = self._revision
        self._list_wanted = False
        try:
            listed = await self._kube.list_all(
                self._resource,
                namespace=self._namespace,
                labels=self._labels,
                fields=self._fields,
            )
            revision = parse_revision(listed.resource_version, tried=self._tried)
            require_revisions(listed.items, tried=self._tried)
            taken_back = revision < known
            if taken_back and self._older < _DISBELIEVED:
                self._older += 1
                raise self._went_back(f"a list is as of revision {revision}", known)
        except BaseException:
            self._list_wanted = True
            raise
        self._older = 0
        self._told = revision
        self._revision = revision if taken_back else max(self._revision, revision)
        return Listed(
            items=listed.items, revision=revision, requested_at=asked, taken_back=taken_back
        )

    async def _follow(self) -> AsyncGenerator[Update[V]]:
        self._opened = None
        self.current = False
        life = round(self._random.uniform(*WATCH_SECONDS))
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(self._revision),
            "timeoutSeconds": str(life),
            "labelSelector": self._labels,
            "fieldSelector": self._fields,
        }
        query = {key: value for key, value in query.items() if value}
        async with AsyncExitStack() as stack:
            with unknown_kind_errors(self._resource):
                opening = self._kube.stream(self._path, query=query)
                answer = await stack.enter_async_context(opening)
            vigil = IdleTimeout(seconds=life + SILENCE_GRACE, clock=self._clock)
            self._vigil = await stack.enter_async_context(vigil)
            stack.callback(setattr, self, "_vigil", None)
            self._opened = self._clock.monotonic()
            self._say("")
            chunks = answer.chunks()
            stack.push_async_callback(_close, chunks)
            lines = LineBuffer()
            while (chunk := await self._next(chunks, vigil)) is not None:
                for line in lines.feed(chunk):
                    update = self._update(line)
                    if update is not None:
                        yield update
            if lines.has_partial:
                raise Unavailable(self._tried, "the connection was cut in the middle of a line")

    async def _next(self, chunks: AsyncIterator[bytes], vigil: IdleTimeout) -> bytes | None:
        """None at the end."""
        if self._list_wanted:
            raise self._asked()
        try:
            return await vigil.wait(anext(chunks, None))
        except TimeoutError as error:
            raise TimedOut(self._tried, str(error)) from error

    def _update(self, line: bytes) -> Update[V] | None:
        """None for what was told before: revisions only grow."""
        try:
            event: WireEvent[V] = self._decoder.decode(line)
        except ValueError as error:
            raise MalformedResponse(self._tried, f"a line that is no event: {error}") from error
        if isinstance(event, ErrorEvent):
            raise status_error(self._tried, body=bytes(event.object))
        revision = parse_revision(event.object.metadata.resource_version, tried=self._tried)
        if isinstance(event, BookmarkEvent):
            if revision < self._told:
                raise self._went_back(f"a bookmark is of revision {revision}", self._told)
            self._told = revision
            self._revision = max(self._revision, revision)
            self.current = True
            return Bookmark(self._revision)
        self._told = max(self._told, revision)
        if revision <= self._revision:
            return None
        self._revision = revision
        if isinstance(event, DeletedEvent):
            return Deleted[V](event.object, revision)
        return Changed[V](event.object, revision)

    def _asked(self) -> "_Asked":
        return _Asked(self._tried, "a new list was asked for")

    def _went_back(self, what: str, known: int) -> Gone:
        seen = f"but {known} was seen before: a server that lags, or a restored cluster"
        return Gone(self._tried, f"{what}, {seen}")

    def _say(self, why: str) -> None:
        if why == self.problem:
            return
        if why:
            log.warning("cannot watch: %s", why)
        else:
            log.info("watching %s again", self._path)
        self.problem = why

    async def _pause(self, *, clean: bool, at_least: float) -> None:
        lived = 0.0 if self._opened is None else self._clock.monotonic() - self._opened
        self._opened = None
        if lived >= BACKOFF_RESET_SECONDS:
            self._backoff.reset()
            if clean:
                return
        await self._clock.sleep(max(at_least, self._backoff.next()))


class _Asked(KubeError):
    """Ends a watch from our side."""


async def _close(chunks: AsyncIterator[bytes]) -> None:
    if isinstance(chunks, AsyncGenerator):
        await chunks.aclose()
