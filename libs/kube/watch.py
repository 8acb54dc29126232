"""The stream of a watch: its lines, its events, and a timeout for silence."""

import asyncio
import re
from collections.abc import Awaitable, Iterable
from typing import Any, Final, Generic, Self, TypeVar

import msgspec

from libs.kube.errors import MalformedResponse
from libs.kube.views import Object
from libs.runtime.clock import Clock

T = TypeVar("T")
V = TypeVar("V", bound=Object)


class AddedEvent(msgspec.Struct, Generic[V], frozen=True, tag_field="type", tag="ADDED"):
    object: V


class ModifiedEvent(msgspec.Struct, Generic[V], frozen=True, tag_field="type", tag="MODIFIED"):
    object: V


class DeletedEvent(msgspec.Struct, Generic[V], frozen=True, tag_field="type", tag="DELETED"):
    object: V


class _Revision(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Revised(msgspec.Struct, frozen=True):
    metadata: _Revision


class BookmarkEvent(msgspec.Struct, frozen=True, tag_field="type", tag="BOOKMARK"):
    object: _Revised


class ErrorEvent(msgspec.Struct, frozen=True, tag_field="type", tag="ERROR"):
    object: msgspec.Raw


WireEvent = AddedEvent[V] | ModifiedEvent[V] | DeletedEvent[V] | BookmarkEvent | ErrorEvent


_REVISION: Final = re.compile(r"[0-9]{1,19}")


def parse_revision(revision: str, *, tried: str) -> int:
    """Return the revision as a number; Kubernetes 1.35 guarantees that revisions are growing
    numbers.
    """
    if not _REVISION.fullmatch(revision):
        raise MalformedResponse(tried, f"the revision {revision!r} is not a number")
    return int(revision)


def require_revisions(items: Iterable[Object], *, tried: str) -> None:
    """Raise `MalformedResponse` unless every item has a revision."""
    for item in items:
        parse_revision(item.metadata.resource_version, tried=tried)


def event_decoder(view: type[Any]) -> msgspec.json.Decoder[Any]:
    """Return a decoder for one line; an unknown event type is an error."""
    # `type` is the first field of an event, so msgspec decodes it in one pass.
    event: Any = (
        AddedEvent[view] | ModifiedEvent[view] | DeletedEvent[view] | BookmarkEvent | ErrorEvent
    )
    return msgspec.json.Decoder(event)


class LineBuffer:
    """Splits chunks into lines; a long line is joined only once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines completed by this chunk, without newlines and empty lines."""
        if b"\n" not in chunk:
            if chunk:
                self._parts.append(chunk)
            return []
        if self._parts:
            chunk = b"".join((*self._parts, chunk))
        *lines, rest = chunk.split(b"\n")
        self._parts = [rest] if rest else []
        return [line for line in lines if line]

    @property
    def has_partial(self) -> bool:
        return bool(self._parts)


class IdleTimeout:
    """Limit each wait to `seconds` while entered, at the cost of one task for all waits.

    Only a wait is cancelled; the time between two waits does not count.
    """

    def __init__(self, *, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._waiting: asyncio.Task[object] | None = None
        self._since = 0.0
        self._error: Exception | None = None

    async def __aenter__(self) -> Self:
        self._watchdog = asyncio.create_task(self._watch(), name="idle timeout")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watchdog.cancel()
        await asyncio.wait({self._watchdog})

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Return the result; raise `TimeoutError` after too long, or the error given to `abort`."""
        owner = asyncio.current_task()
        if owner is None:
            raise RuntimeError("an idle timeout needs a task that can be cancelled")
        if self._error is not None:
            raise self._error
        before = owner.cancelling()
        self._since = self._clock.monotonic()
        self._waiting = owner
        try:
            return await awaitable
        except asyncio.CancelledError:
            if self._error is not None and owner.cancelling() - 1 <= before:
                raise self._error from None
            raise
        finally:
            self._waiting = None
            if self._error is not None:
                owner.uncancel()

    def abort(self, error: Exception) -> None:
        """End the current wait, if any, with this error."""
        if self._waiting is not None and self._error is None:
            self._error = error
            self._waiting.cancel()

    async def _watch(self) -> None:
        while self._error is None:
            now = self._clock.monotonic()
            # Of two times the difference is exact as it becomes small, so that a wait is not
            # rounded to less than the resolution of the clock.
            until = (self._since if self._waiting is not None else now) + self._seconds
            if now >= until:
                self.abort(TimeoutError(f"nothing received for {self._seconds:.0f} s"))
            else:
                await self._clock.sleep(until - now)
