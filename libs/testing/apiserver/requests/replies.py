"""Replies to requests: status, headers, and a body that may be streamed."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping

from libs.testing.apiserver.objects.encoding import encoded
from libs.testing.apiserver.status import StatusError

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


class PathNotFound(StatusError):
    """A path outside the API, which is refused in plain text."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")


def error_reply(error: StatusError) -> Reply:
    if isinstance(error, PathNotFound):
        return Reply(404, b"404 page not found\n", content_type="text/plain; charset=utf-8")
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return Reply(error.code, encoded(error.status()), headers=headers)
