"""What goes back to whoever asked: a status, headers, and a body as it comes."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping

from libs.testing.apiserver.objects.encoding import encoded
from libs.testing.apiserver.status import StatusError

JSON = "application/json"


class Reply:
    """Of one request. Reading its chunks may raise `Severed`."""

    def __init__(
        self,
        status: int,
        body: bytes | None = None,
        *,
        stream: AsyncGenerator[bytes] | None = None,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        closing: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        """The whole, where it is known before any of it goes out."""
        self.headers = {"content-type": content_type, **(headers or {})}
        self._stream = stream
        self._closing = closing

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body."""
        if self.body is not None:
            yield self.body
        if self._stream is not None:
            async for chunk in self._stream:
                yield chunk

    def with_body(
        self, changed: Callable[[AsyncIterator[bytes]], AsyncGenerator[bytes]]
    ) -> "Reply":
        """The same reply with its body sent another way."""
        whole = Reply(self.status, stream=changed(self.chunks()), closing=self.close)
        whole.headers = self.headers
        return whole

    async def close(self) -> None:
        """Nobody reads on."""
        if self._stream is not None:
            await self._stream.aclose()
        if self._closing is not None:
            await self._closing()


class PathNotFound(StatusError):
    """Nothing at all is there; that is said in plain text."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")


def error_reply(refusal: StatusError) -> Reply:
    """The answer of a request that was not carried out."""
    if isinstance(refusal, PathNotFound):
        return Reply(404, b"404 page not found\n", content_type="text/plain; charset=utf-8")
    headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
    return Reply(refusal.code, encoded(refusal.status()), headers=headers)
