"""The interface between client and server: send one request, receive one response.

Implemented by HTTP (`libs.kube.http`) and by a direct call into the simulated server. Deadlines and
the interpretation of responses belong to the client.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request to an API server."""

    method: str
    path: str
    """Unquoted, without the query: `/api/v1/nodes/n1`."""
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    """Without those of authentication; lower-case names."""
    body: bytes = b""


def describe_request(request: Request) -> str:
    return f"{request.method} {request.path}"


class Response(Protocol):
    """A response, valid while its `open` context lasts. A cut connection raises `Unavailable`."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """With lower-case names."""
        ...

    async def body(self) -> bytes: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the bytes as they arrive, split anywhere."""
        ...


class Transport(Protocol):
    """A connection to one API server, as one user."""

    def __str__(self) -> str:
        """Return the server's address, for errors."""
        ...

    def open(self, request: Request) -> AbstractAsyncContextManager[Response]:
        """Send the request and return the response head; raise `Unavailable` if none arrives."""
        ...
