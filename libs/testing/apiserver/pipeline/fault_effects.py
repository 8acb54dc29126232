"""Applies the effects of faults before a request is executed, and to its reply."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence

from libs.runtime.clock import Clock
from libs.testing.apiserver.faults import Cut, Delay, FaultEffect, RefuseRequest, Restart, SlowBody
from libs.testing.apiserver.requests.replies import Reply
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.storage.watches import ConnectionCut

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
