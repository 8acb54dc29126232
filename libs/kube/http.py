"""HTTP transport to an API server: one session with kept connections, and readable failures.

Credentials are requested anew for each request (`libs.kube.config` reads them). Deadlines belong to
the client.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Protocol, Self, cast
from urllib.parse import quote, urlencode

import msgspec
from yarl import URL

from libs.kube.aiohttp import aiohttp
from libs.kube.errors import Unauthorized, Unavailable, status_error
from libs.kube.requests import Request
from libs.runtime.fatal import describe_connect_error

_READ_BUFFER = 2**18
"""Read buffer in bytes: enough to receive a page of objects without a pause."""

_KEEPALIVE = 60.0
"""Seconds to keep an idle connection; the server drops it after 90."""

_END = cast(Any, aiohttp.ClientWSTimeout)(ws_close=0.5)
"""Seconds to wait for the other side's end of a websocket: nothing is lost without it."""


class RequestAuth(msgspec.Struct, frozen=True, kw_only=True):
    """Headers and TLS context that authenticate one request."""

    headers: Mapping[str, str] = {}
    tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"RequestAuth({', '.join(self.headers)})"


class CredentialProvider(Protocol):
    async def current(self) -> RequestAuth:
        """Return the current credentials; raise `Unavailable` if there are none."""
        ...

    async def refresh(self, rejected: RequestAuth) -> RequestAuth | None:
        """Return other credentials after a 401, or None."""
        ...

    async def close(self) -> None: ...


class StaticToken:
    """A bearer token that never changes, or none."""

    def __init__(self, token: str = "", *, tls: ssl.SSLContext | None = None) -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._auth = RequestAuth(headers=headers, tls=tls)

    async def current(self) -> RequestAuth:
        return self._auth

    async def refresh(self, rejected: RequestAuth) -> RequestAuth | None:  # noqa: ARG002  (never changes)
        return None

    async def close(self) -> None:
        pass


class HttpTransport:
    """Transport to one API server.

    The number of parallel requests is not limited here: a watch holds its connection for minutes
    and must not delay a request.
    """

    def __init__(
        self, url: str, *, credentials: CredentialProvider, proxy: str = "", server_name: str = ""
    ) -> None:
        self.url = url.rstrip("/")
        self._credentials = credentials
        self._proxy = proxy or None
        self._server_name = server_name or None
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def __str__(self) -> str:
        return self.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Drop all connections: running and later requests fail."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await asyncio.sleep(0)  # aborted connections close in the loop's next turn
        await self._credentials.close()

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator["HttpResponse"]:
        """Send the request, once more with refreshed credentials after a 401.

        The session also repeats a request whose kept connection was closed, but never a POST or
        PATCH, which may have been carried out. A PUT names its revision and a DELETE its uid, so a
        repetition changes nothing.
        """
        auth = await self._credentials.current()
        response = await self._send(request, auth)
        try:
            if response.status == 401 and (refreshed := await self._credentials.refresh(auth)):
                _abort(response)
                response = await self._send(request, refreshed)
            yield HttpResponse(response, request, url=self.url)
        finally:
            _abort(response)

    async def websocket(
        self, request: Request, *, protocol: str
    ) -> "aiohttp.ClientWebSocketResponse[bool]":
        """Open a websocket, once more with refreshed credentials after a 401.

        Raise the typed error of a refusal. It ends with this transport.
        """
        auth = await self._credentials.current()
        try:
            return await self._upgrade(request, auth, protocol)
        except Unauthorized:
            refreshed = await self._credentials.refresh(auth)
            if refreshed is None:
                raise
            return await self._upgrade(request, refreshed, protocol)

    async def _send(self, request: Request, auth: RequestAuth) -> aiohttp.ClientResponse:
        session = self._opened(request)
        try:
            return await session.request(
                request.method,
                _request_url(self.url, request),
                data=request.body or None,
                headers={**request.headers, **auth.headers},
                allow_redirects=False,
                ssl=auth.tls or True,
                server_hostname=self._server_name,
                proxy=self._proxy,
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unavailable(str(request), f"{self.url}: {describe_error(error)}") from error

    async def _upgrade(
        self, request: Request, auth: RequestAuth, protocol: str
    ) -> "aiohttp.ClientWebSocketResponse[bool]":
        async def check(response: aiohttp.ClientResponse) -> None:
            # aiohttp would discard the body, in which the server says why it refuses.
            if response.status != HTTPStatus.SWITCHING_PROTOCOLS:
                body = await response.read()
                raise status_error(str(request), code=response.status, body=body)

        connector = self._opened(request).connector
        session = _new_session(connector=connector, connector_owner=False, raise_for_status=check)
        try:
            async with session:
                return await session.ws_connect(
                    _request_url(self.url, request),
                    protocols=(protocol,),
                    timeout=_END,
                    headers={**request.headers, **auth.headers},
                    ssl=auth.tls or True,
                    server_hostname=self._server_name,
                    proxy=self._proxy,
                )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unavailable(str(request), f"{self.url}: {describe_error(error)}") from error

    def _opened(self, request: Request) -> aiohttp.ClientSession:
        if self._closed:
            raise Unavailable(str(request), f"{self.url}: this client is closed")
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE)
            self._session = _new_session(connector=connector)
        return self._session


class HttpResponse:
    """A response whose body is still arriving."""

    def __init__(self, response: aiohttp.ClientResponse, request: Request, *, url: str) -> None:
        self._response = response
        self._request = request
        self._url = url
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def body(self) -> bytes:
        try:
            return await self._response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken_off(error) from error

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken_off(error) from error

    def _broken_off(self, error: Exception) -> Unavailable:
        why = f"{self._url}: the response broke off: {describe_error(error)}"
        return Unavailable(str(self._request), why)


def _abort(response: aiohttp.ClientResponse) -> None:
    # A connection whose response was read to its end is back in the pool. Abort any other: under
    # TLS a close would wait in the background for the server's close_notify.
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def describe_error(error: Exception) -> str:
    """Describe why a request or its response was lost."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the host name {error.host} cannot be resolved; check the name and DNS"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _describe_certificate_error(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        why = _describe_os_error(error.os_error)
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return f"the proxy cannot be reached: {why}"
        if isinstance(error, aiohttp.ClientConnectorSSLError):
            return f"TLS failed: {why}; is this the server's HTTPS port?"
        return why
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return f"no websocket: {error.message.lower()}; does a proxy on the way pass them on?"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection before it answered"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection was cut"
    if isinstance(error, OSError):
        return _describe_os_error(error)
    if isinstance(error, aiohttp.InvalidURL):
        return "this is not the address of a server"
    return f"{type(error).__name__}: {error}"


def _describe_certificate_error(error: Exception) -> str:
    if not isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate cannot be checked: {error}"
    why = error.verify_message
    if "ostname mismatch" in why or "IP address mismatch" in why:
        return f"the server's certificate is for another name: {why}"
    if "expired" in why or "not yet valid" in why:
        return f"the server's certificate is out of date: {why}; check the clocks"
    return (
        f"the server's certificate is not signed by a trusted authority ({why}); "
        f"configure the CA file of this cluster"
    )


def _describe_os_error(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{error.reason or error}".lower().replace("_", " ")
    return describe_connect_error(error)


def _request_url(url: str, request: Request) -> URL:
    path = quote(request.path, safe="/:@")
    query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
    return URL(f"{url}{path}{query}", encoded=True)


def _new_session(**options: Any) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        **options,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(),
        # Compression costs both sides more than the network does.
        headers={"accept-encoding": "identity", "user-agent": "sluice"},
        read_bufsize=_READ_BUFFER,
        trust_env=False,
    )
