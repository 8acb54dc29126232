"""Requests to an API server: the interface of transports, and a client with deadlines over it.

A `Transport` sends one request and receives one response, by HTTP (`libs.kube.http`) or by a direct
call into the simulated server. Deadlines and the meaning of responses belong to the client, whose
failures are typed errors (`libs.kube.errors`) and never retried here.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Generator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from functools import cache
from typing import Any, Protocol, TypeVar

import msgspec

from libs.kube.errors import (
    KubeError,
    MalformedResponse,
    NotFound,
    TimedOut,
    UnknownKind,
    status_error,
)
from libs.kube.resources import Resource
from libs.runtime.clock import Clock
from libs.runtime.tasks import bounded

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request to an API server."""

    method: str
    path: str
    """Unquoted, without the query: `/api/v1/nodes/n1`."""
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    """Without those of authentication; lower-case names."""
    body: bytes = b""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


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


DEFAULT_TIMEOUT = 10.0
"""Default limit of a request in seconds."""

JSON = "application/json"
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""The form of one object, or of a watch event, with its metadata alone."""
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class BaseClient:
    """One API server and one field manager."""

    def __init__(self, transport: Transport, *, manager: str, clock: Clock) -> None:
        self._transport = transport
        self.manager = manager
        self._clock = clock

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
        within: float = DEFAULT_TIMEOUT,
    ) -> bytes:
        """Return the body of a successful response; raise a typed error, `TimedOut` after `within`
        seconds.

        A change carries the same deadline to the server, which then does not carry it out after the
        client has given up.
        """
        parameters = dict(query or {})
        if method != "GET":
            parameters.setdefault("timeout", f"{within:.3f}s")
        request = Request(
            method=method,
            path=path,
            query=parameters,
            headers=self._headers(accept)
            | ({} if body is None else {"content-type": content_type}),
            body=b"" if body is None else msgspec.json.encode(body),
        )
        return await self._within(request, self._exchange(request), within)

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        accept: str = JSON,
        within: float = DEFAULT_TIMEOUT,
    ) -> AsyncGenerator[Response]:
        """Open a response without end; `within` limits only the wait for its head."""
        request = Request(method="GET", path=path, query=query, headers=self._headers(accept))
        opened = self._transport.open(request)
        async with AsyncExitStack() as stack:
            # Entered on the stack so that it is closed even if the deadline passes right then.
            entering = stack.enter_async_context(opened)
            response = await self._within(request, entering, within)
            if not _is_success(response):
                body = await self._within(request, response.body(), within)
                raise _error(request, response, body)
            yield response

    def _headers(self, accept: str) -> dict[str, str]:
        # The server uses the user agent as field manager where a request cannot name one.
        return {"accept": accept, "user-agent": self.manager}

    async def _exchange(self, request: Request) -> bytes:
        async with self._transport.open(request) as response:
            body = await response.body()
            if not _is_success(response):
                raise _error(request, response, body)
            return body

    async def _within(self, request: Request, awaitable: Awaitable[T], within: float) -> T:
        try:
            return await bounded(awaitable, seconds=within, clock=self._clock)
        except TimeoutError as error:
            why = f"no complete response from {self._transport} within {within:g} s"
            raise TimedOut(str(request), f"{why}; check the server and the network") from error


class _ApiObject(msgspec.Struct, frozen=True):
    kind: str


@cache
def _decoder(view: type[S]) -> msgspec.json.Decoder[S]:
    return msgspec.json.Decoder(view)


def decode(body: bytes | msgspec.Raw, view: type[S], *, tried: str) -> S:
    """Decode the body; `MalformedResponse` names the field at fault."""
    try:
        return _decoder(view).decode(body)
    except (ValueError, RecursionError) as error:
        raise MalformedResponse(
            tried, f"the response cannot be read as {view.__name__.lstrip('_')}: {error}"
        ) from error


def kind_of(body: bytes, *, tried: str) -> str:
    """Return the kind of an API server's answer, which may be a Status."""
    return decode(body, _ApiObject, tried=tried).kind


def require_api_object(body: bytes, *, tried: str) -> None:
    """Raise `MalformedResponse` unless an API server wrote it; proxies answer 200 as well."""
    kind_of(body, tried=tried)


@contextmanager
def unknown_kind_errors(resource: Resource[Any]) -> Generator[None]:
    """Turn a `NotFound` without an object name into `UnknownKind`, with the remedy."""
    try:
        yield
    except NotFound as error:
        if error.missing:
            raise
        problem = f"the server does not serve {resource.plural} of {resource.api_version}"
        if resource.is_custom:
            crd = f"{resource.plural}.{resource.group}"
            problem += f": install the CustomResourceDefinition {crd}"
        raise UnknownKind(error.operation, problem, code=error.code, reason=error.reason) from error


def _is_success(response: Response) -> bool:
    """Return whether the status is 2xx; an API server never redirects."""
    return 200 <= response.status < 300


def _error(request: Request, response: Response, body: bytes) -> KubeError:
    retry_after = response.headers.get("retry-after")
    return status_error(str(request), code=response.status, body=body, retry_after=retry_after)
