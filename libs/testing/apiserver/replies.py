"""Replies, with bodies that may be streamed, and the requests in flight."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any

from libs.testing.apiserver.objects.json import encoded
from libs.testing.apiserver.status import PathNotFound, StatusError
from libs.testing.apiserver.watches import ConnectionCut

JSON = "application/json"


class Reply:
    """The reply to one request. Reading its chunks may raise `ConnectionCut`."""

    def __init__(
        self,
        status: int,
        body: bytes | None = None,
        *,
        stream: AsyncGenerator[bytes] | None = None,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        on_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        """The complete body; None where it is streamed."""
        self.headers = {"content-type": content_type, **(headers or {})}
        self._stream = stream
        self._on_close = on_close

    async def chunks(self) -> AsyncIterator[bytes]:
        if self.body is not None:
            yield self.body
        if self._stream is not None:
            async for chunk in self._stream:
                yield chunk

    def with_body(
        self, transform: Callable[[AsyncIterator[bytes]], AsyncGenerator[bytes]]
    ) -> "Reply":
        """Return the same reply with a transformed body."""
        reply = Reply(self.status, stream=transform(self.chunks()), on_close=self.close)
        reply.headers = self.headers
        return reply

    async def close(self) -> None:
        """Release the stream; the client reads no further."""
        if self._stream is not None:
            await self._stream.aclose()
        if self._on_close is not None:
            await self._on_close()


def error_reply(error: StatusError) -> Reply:
    if isinstance(error, PathNotFound):
        return Reply(404, b"404 page not found\n", content_type="text/plain; charset=utf-8")
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return Reply(error.code, encoded(error.status()), headers=headers)


class InFlightRequests:
    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Reply], None] = {}

    async def run(self, work: Coroutine[Any, Any, Reply], *, outlives: bool) -> Reply:
        """Run a request; raise `ConnectionCut` where the server stops.

        A write outlives the disconnect of its client, a read does not.
        """
        task = asyncio.create_task(work, name="request")
        self._tasks[task] = None
        task.add_done_callback(self._finish)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            if not outlives:
                await _drop(task)
            raise
        if task.cancelled():
            raise ConnectionCut
        return task.result()

    async def cancel_all(self) -> None:
        """Cancel all requests but the current one."""
        others = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)

    def _finish(self, task: asyncio.Task[Reply]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.exception()  # mark it retrieved


async def _drop(task: asyncio.Task[Reply]) -> None:
    """Cancel a request, or close its unused reply."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and task.exception() is None:
        await task.result().close()
