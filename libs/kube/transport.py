"""The seam between the client and a server: one request goes out, an answer comes back, no more.

Two lead through it: HTTP (`libs.kube.http`), and straight into a simulated server's handler. It
knows no deadlines (the client has them, by its own clock) and does not judge what came back.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of an API server."""

    method: str
    path: str
    """Not quoted, without the query: `/api/v1/nodes/n1`."""
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    """Beside those of authentication; names in lower case."""
    body: bytes = b""


def describe_request(request: Request) -> str:
    """A request in words, for an error."""
    return f"{request.method} {request.path}"


class Response(Protocol):
    """What came back, while its `open` lasts. A connection that is cut raises `Unavailable`."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    async def body(self) -> bytes:
        """The whole of it."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Its bytes as they come, cut anywhere."""
        ...


class Transport(Protocol):
    """A way to one API server, as one user."""

    def __str__(self) -> str:
        """Which server it leads to, for an error."""
        ...

    def open(self, request: Request) -> AbstractAsyncContextManager[Response]:
        """Send it, and give the answer's head; `Unavailable` where none comes."""
        ...
