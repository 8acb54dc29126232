"""The way to an API server over HTTP: one session, its connections kept, its failures in words.

How to reach the server and who we are is given (`Credentials`, for each request anew); where that
comes from is `libs.kube.config`'s business. It has no deadlines: the client has them.
"""

import asyncio
import errno
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol, Self
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from yarl import URL

from libs.kube.errors import Unavailable
from libs.kube.transport import Request, describe_request

_BUFFER = 2**18
"""Bytes that may wait to be read: enough for a page of objects to come in without a stop."""

_IDLE = 60.0
"""Seconds for which an unused connection is kept; the server drops it after 90."""


class RequestAuth(msgspec.Struct, frozen=True, kw_only=True):
    """What opens the server's door for one request."""

    headers: Mapping[str, str] = {}
    tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"Pass({', '.join(self.headers)})"


class CredentialProvider(Protocol):
    """Who we are, as of now."""

    async def current(self) -> RequestAuth:
        """What to show; `Unavailable` where there is nothing."""
        ...

    async def refresh(self, rejected: RequestAuth) -> RequestAuth | None:
        """The server did not accept that: something else to show, if there is."""
        ...

    async def close(self) -> None:
        """They will not be asked for any more."""
        ...


class StaticToken:
    """A bearer token that stays as it is, or none."""

    def __init__(self, token: str = "", *, tls: ssl.SSLContext | None = None) -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._pass = RequestAuth(headers=headers, tls=tls)

    async def current(self) -> RequestAuth:
        """Always the same."""
        return self._pass

    async def refresh(self, rejected: RequestAuth) -> RequestAuth | None:  # noqa: ARG002  (there is no other)
        """There is no other."""
        return None

    async def close(self) -> None:
        """Nothing is open."""


class HttpTransport:
    """One API server. How many requests run at a time is bounded by those who ask, not here: a
    watch holds its connection for minutes, and must keep no request waiting.
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
        """Drop all connections: what is under way fails, and so does what comes later."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await asyncio.sleep(0)  # what was aborted is closed in the loop's next turn
        await self._credentials.close()

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator["HttpResponse"]:
        """Send it, a second time where the server refused the first for its credentials.

        So is what found its kept connection closed, but never a POST or a PATCH: it may have been
        carried out. A PUT names its revision and a DELETE its uid, so that twice is once.
        """
        shown = await self._credentials.current()
        response = await self._send(request, shown)
        try:
            if response.status == 401 and (other := await self._credentials.refresh(shown)):
                _leave(response)
                response = await self._send(request, other)
            yield HttpResponse(response, request, url=self.url)
        finally:
            _leave(response)

    async def _send(self, request: Request, shown: RequestAuth) -> aiohttp.ClientResponse:
        if self._closed:
            raise Unavailable(
                describe_request(request), f"{self.url}: the way there was closed from here"
            )
        session = self._session
        if session is None:
            session = self._session = _session()
        try:
            return await session.request(
                request.method,
                _address(self.url, request),
                data=request.body or None,
                headers={**request.headers, **shown.headers},
                allow_redirects=False,
                ssl=shown.tls or True,
                server_hostname=self._server_name,
                proxy=self._proxy,
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unavailable(
                describe_request(request), f"{self.url}: {describe_error(error)}"
            ) from error


class HttpResponse:
    """An answer whose body is still on its way."""

    def __init__(self, response: aiohttp.ClientResponse, request: Request, *, url: str) -> None:
        self._response = response
        self._request = request
        self._url = url
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def body(self) -> bytes:
        """The whole of it."""
        try:
            return await self._response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise self._cut(error) from error

    async def chunks(self) -> AsyncIterator[bytes]:
        """Its bytes as they come, as many at a time as there are."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise self._cut(error) from error

    def _cut(self, error: Exception) -> Unavailable:
        why = f"{self._url}: the answer broke off: {describe_error(error)}"
        return Unavailable(describe_request(self._request), why)


def _leave(response: aiohttp.ClientResponse) -> None:
    # A connection whose answer was read to its end went back to the pool by itself. Another is of
    # no more use; under TLS a mere close would wait for the server's farewell, out of our sight.
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def describe_error(error: Exception) -> str:
    """Why a request or its answer did not get through, for a person."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"no address is known for the host {error.host}; check the name, and DNS"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _certificate(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        why = _system(error.os_error)
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return f"the proxy cannot be reached: {why}"
        if isinstance(error, aiohttp.ClientConnectorSSLError):
            return f"TLS failed: {why}; is this the server's HTTPS port?"
        return why
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection before it answered"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection was cut"
    if isinstance(error, OSError):
        return _system(error)
    if isinstance(error, aiohttp.InvalidURL):
        return "this is not the address of a server"
    return f"{type(error).__name__}: {error}"


def _certificate(error: Exception) -> str:
    if not isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate cannot be checked: {error}"
    why = error.verify_message
    if "ostname mismatch" in why or "IP address mismatch" in why:
        return f"the server's certificate is for another name: {why}"
    if "expired" in why or "not yet valid" in why:
        return f"the server's certificate is out of date: {why}; check the clocks"
    return (
        f"the server's certificate is not from an authority that we trust ({why}); "
        f"the configured CA file must be that of this cluster"
    )


def _system(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{error.reason or error}".lower().replace("_", " ")
    number = error.errno
    if number == errno.ECONNREFUSED:
        return "connection refused: nothing listens there"
    if number in {errno.ECONNRESET, errno.EPIPE}:
        return "the server reset the connection"
    return os.strerror(number).lower() if number else f"{error}" or type(error).__name__


def _address(url: str, request: Request) -> URL:
    path = quote(request.path, safe="/:@")
    query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
    return URL(f"{url}{path}{query}", encoded=True)


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(),
        # To pack and unpack costs both sides more than the network does.
        headers={"accept-encoding": "identity", "user-agent": "sluice"},
        read_bufsize=_BUFFER,
        trust_env=False,
    )
