"""Faults on demand: which requests they affect, how, and how often."""

import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from libs.runtime.clock import Clock
from libs.testing.apiserver.kinds.status_errors import MODIFIED
from libs.testing.apiserver.replies import Reply
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.watches import ConnectionCut, ServerWatches

_BUSY = "the server has received too many requests and has asked us to try again later"
_MODIFIED = f"Operation cannot be fulfilled: {MODIFIED}"
_REASONS = {
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden by a fault"),
    409: ("Conflict", _MODIFIED),
    429: ("TooManyRequests", _BUSY),
    500: ("InternalError", "Internal error occurred: a fault"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
}


class Delay(msgspec.Struct, frozen=True):
    """The request waits before it is executed.

    In the server the wait ends at the request's `timeout`; on the way to it there is no limit.
    """

    seconds: float
    where: Literal["server", "way"] = "server"


class Hang(msgspec.Struct, frozen=True):
    """The request is neither executed nor answered."""


class RefuseRequest(msgspec.Struct, frozen=True):
    """The request is refused with this code."""

    code: int
    retry_after: int | None = None

    def status_error(self) -> StatusError:
        default = ("", f"refused with {self.code} by a fault")
        reason, message = _REASONS.get(self.code, default)
        return StatusError(self.code, reason, message, retry_after=self.retry_after)


class Cut(msgspec.Struct, frozen=True):
    """The connection is cut before the request is executed, after it, or within the body."""

    at: Literal["before", "after", "body"]


class DropWatch(msgspec.Struct, frozen=True):
    """A watch ends after `after` events; cleanly, or cut in the middle of the next line."""

    after: int = 0
    clean: bool = True


class Stale(msgspec.Struct, frozen=True):
    """A list that may be of any age is this many changes old."""

    changes: int


class SlowBody(msgspec.Struct, frozen=True):
    """The body is sent in pieces of this many bytes, with a pause before each."""

    piece: int
    seconds: float


class Restart(msgspec.Struct, frozen=True):
    """The server restarts instead of answering."""


FaultEffect = Delay | Hang | RefuseRequest | Cut | DropWatch | Stale | SlowBody | Restart


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """An effect, and the requests that it affects; an empty field selects all."""

    effect: FaultEffect
    verbs: tuple[str, ...] = ()
    """get, list, watch, create, update, patch, apply, delete, deletecollection, evict, bind,
    portforward."""
    kind: str = ""
    name: str = ""
    user: str = ""
    probability: float = 1.0
    times: int | None = None
    """The number of requests that are affected at most."""


class FaultTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The attributes of a request that faults select by."""

    verb: str
    kind: str
    name: str
    user: str
    any_age: bool = False
    """Whether it is a list that may be stale."""


class ActiveFault:
    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.hit_count = 0

    def matches(self, target: FaultTarget) -> bool:
        fault = self.fault
        if fault.times is not None and self.hit_count >= fault.times:
            return False
        if isinstance(fault.effect, DropWatch) and target.verb != "watch":
            return False
        if isinstance(fault.effect, Stale) and not target.any_age:
            return False
        return (
            (not fault.verbs or target.verb in fault.verbs)
            and fault.kind in ("", target.kind)
            and fault.name in ("", target.name)
            and fault.user in ("", target.user)
        )


class ApiFaults:
    """The active faults of a server."""

    def __init__(self, *, random: random.Random, watches: ServerWatches) -> None:
        self._random = random
        self._watches = watches
        self._active: dict[ActiveFault, None] = {}

    def add(self, fault: Fault) -> ActiveFault:
        """Activate a fault; the result counts its hits."""
        active = ActiveFault(fault)
        self._active[active] = None
        return active

    def remove(self, active: ActiveFault) -> None:
        self._active.pop(active, None)

    def clear(self) -> None:
        self._active.clear()

    def drop_watches(self, *, kind: str = "", user: str = "", clean: bool = True) -> int:
        """End the open watches, and return their number."""
        return self._watches.end(clean=clean, kind=kind, user=user)

    def effects_on(self, target: FaultTarget) -> list[FaultEffect]:
        """Return the effects on this request, in the order in which the faults were added."""
        effects: list[FaultEffect] = []
        for active in self._active:
            fault = active.fault
            if active.matches(target) and (
                fault.probability >= 1.0 or self._random.random() < fault.probability
            ):
                active.hit_count += 1
                effects.append(fault.effect)
        return effects


_TIMED_OUT = (
    "Timeout: request did not complete within requested timeout - context deadline exceeded"
)


async def apply_before(
    effects: Sequence[FaultEffect],
    *,
    limit: float,
    clock: Clock,
    restart: Callable[[], Awaitable[None]],
) -> None:
    """Return if the request shall be executed; raise within `limit` seconds if not."""
    for effect in effects:
        match effect:
            case Delay(seconds, "way"):
                await clock.sleep(seconds)
            case Delay(seconds, "server"):
                await clock.sleep(min(seconds, limit))
                limit -= seconds
                if limit <= 0.0:
                    raise StatusError(504, "Timeout", _TIMED_OUT)
            case RefuseRequest():
                raise effect.status_error()
            case Restart():
                await restart()
                raise ConnectionCut
            case Cut("before"):
                raise ConnectionCut
            case _:
                pass


def apply_after(reply: Reply, effects: Sequence[FaultEffect], *, clock: Clock) -> Reply:
    """Return the reply as it is sent; raise `ConnectionCut` where none is."""
    for effect in effects:
        match effect:
            case Cut("after"):
                raise ConnectionCut
            case Cut("body"):
                reply = reply.with_body(_half)
            case SlowBody(piece, seconds):
                reply = reply.with_body(_slowly(piece, seconds, clock))
            case _:
                pass
    return reply


async def _half(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Send half of the first chunk, and cut the connection."""
    async for chunk in chunks:
        yield chunk[: len(chunk) // 2]
        break
    raise ConnectionCut


def _slowly(
    piece: int, seconds: float, clock: Clock
) -> Callable[[AsyncIterator[bytes]], AsyncGenerator[bytes]]:
    async def slow(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        async for chunk in chunks:
            for start in range(0, len(chunk), piece):
                await clock.sleep(seconds)
                yield chunk[start : start + piece]

    return slow
