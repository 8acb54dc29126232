"""What a strike does to a request: before it is carried out, and to its answer."""

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
    strikes: Sequence[FaultEffect],
    *,
    limit: float,
    clock: Clock,
    restart: Callable[[], Awaitable[None]],
) -> None:
    """Returns where the request is to be carried out; in `limit` seconds, or not at all."""
    for strike in strikes:
        match strike:
            case Delay(seconds, "way"):
                await clock.sleep(seconds)
            case Delay(seconds, "server"):
                await clock.sleep(min(seconds, limit))
                limit -= seconds
                if limit <= 0.0:
                    raise StatusError(504, "Timeout", _TIMED_OUT)
            case RefuseRequest():
                raise strike.status_error()
            case Restart():
                await restart()
                raise ConnectionCut
            case Cut("before"):
                raise ConnectionCut
            case _:
                pass


def apply_after(reply: Reply, strikes: Sequence[FaultEffect], *, clock: Clock) -> Reply:
    """The answer as it goes out; `Severed` where none does."""
    for strike in strikes:
        match strike:
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
    """Of the first piece, and then nothing."""
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
