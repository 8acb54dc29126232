"""The transport over HTTP: requests, responses of any size, and readable failures."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
import pytest
from aiohttp import web

from libs.kube.client import Kube
from libs.kube.errors import TimedOut, Unauthorized, Unavailable
from libs.kube.http import HttpTransport, RequestAuth, StaticToken
from libs.kube.requests import Request
from libs.kube.watch import LineBuffer
from libs.runtime.clock import SystemClock
from tests.component.kube_client.web import CertificateAuthority, serve

NODES = Request(method="GET", path="/api/v1/nodes")


async def echo(request: web.BaseRequest) -> web.StreamResponse:
    return web.json_response(
        {
            "method": request.method,
            "path": request.raw_path,
            "query": dict(request.query),
            "headers": {name.lower(): value for name, value in request.headers.items()},
            "body": await request.text(),
        }
    )


async def body_of(transport: HttpTransport, request: Request = NODES) -> bytes:
    async with transport.open(request) as response:
        return await response.body()


async def failure_of(transport: HttpTransport, request: Request = NODES) -> str:
    with pytest.raises(Unavailable) as failed:
        await body_of(transport, request)
    assert failed.value.operation == f"{request.method} {request.path}"
    return failed.value.message.removeprefix(f"{transport.url}: ")


def trusting(authority: CertificateAuthority) -> StaticToken:
    return StaticToken(tls=ssl.create_default_context(cafile=authority.ca))


async def test_requests_arrive_unchanged() -> None:
    request = Request(
        method="PATCH",
        path="/api/v1/nodes/a.b-c.d",
        query={
            "labelSelector": "app in (a,b),!x/y,z=1+1",
            "fieldSelector": "spec.nodeName=n&1",
            "continue": "eyJ2Ij+/=",
        },
        headers={"content-type": "application/apply-patch+yaml"},
        body='{"ä":1}'.encode(),
    )
    async with (
        serve(echo) as url,
        HttpTransport(f"{url}/", credentials=StaticToken("secret")) as transport,
        transport.open(request) as response,
    ):
        assert response.status == 200
        assert response.headers["content-type"] == "application/json; charset=utf-8"
        received = msgspec.json.decode(await response.body())
    assert (received["method"], received["body"]) == ("PATCH", '{"ä":1}')
    assert received["path"].partition("?")[0] == "/api/v1/nodes/a.b-c.d"
    assert received["query"] == request.query
    assert received["headers"]["content-type"] == "application/apply-patch+yaml"
    assert received["headers"]["authorization"] == "Bearer secret"
    assert received["headers"]["accept-encoding"] == "identity"


async def test_a_name_is_quoted_in_the_path() -> None:
    seen: list[str] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.raw_path)
        return web.Response()

    async with serve(handle) as url, HttpTransport(url, credentials=StaticToken()) as transport:
        for name in ("system:node", "a?b=c", "a%2fb", "ä#x"):
            await body_of(transport, Request(method="GET", path=f"/api/v1/nodes/{name}"))
    assert seen == [
        "/api/v1/nodes/system:node",
        "/api/v1/nodes/a%3Fb%3Dc",
        "/api/v1/nodes/a%252fb",
        "/api/v1/nodes/%C3%A4%23x",
    ]


async def test_errors_are_responses_and_redirects_are_not_followed() -> None:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/moved":
            return web.Response(status=302, headers={"Location": "/"})
        return web.Response(status=429, headers={"Retry-After": "7"}, text="slowly")

    async with serve(handle) as url, HttpTransport(url, credentials=StaticToken()) as transport:
        async with transport.open(NODES) as refused:
            assert (refused.status, refused.headers["retry-after"]) == (429, "7")
            assert await refused.body() == b"slowly"
        async with transport.open(Request(method="GET", path="/moved")) as moved:
            assert moved.status == 302


async def test_long_lines_and_watches_beside_requests() -> None:
    line = b"x" * 1_600_000
    resume = asyncio.Event()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=b"at once")
        stream = web.StreamResponse()
        await stream.prepare(request)
        await stream.write(b"first\n" + line + b"\nsec")
        await resume.wait()
        await stream.write(b"ond\n")
        return stream

    watch = Request(method="GET", path="/api/v1/nodes", query={"watch": "true"})

    async def lines(transport: HttpTransport) -> AsyncGenerator[bytes]:
        buffer = LineBuffer()
        async with transport.open(watch) as response:
            async for chunk in response.chunks():
                for line_read in buffer.feed(chunk):
                    yield line_read

    async with (
        serve(handle) as url,
        HttpTransport(url, credentials=StaticToken()) as transport,
        asyncio.timeout(20),
        aclosing(lines(transport)) as first,
    ):
        assert [await anext(first), await anext(first)] == [b"first", line]
        others = [lines(transport) for _ in range(150)]
        assert {await anext(other) for other in others} == {b"first"}
        assert await body_of(transport) == b"at once"
        resume.set()
        assert [each async for each in first] == [b"second"]
        for other in others:
            await other.aclose()


async def test_connections_are_reused() -> None:
    peers: set[object] = set()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response(body=b"x" * 300_000)

    async with serve(handle) as url, HttpTransport(url, credentials=StaticToken()) as transport:
        for _ in range(5):
            await body_of(transport)
        assert len(peers) == 1
        async with transport.open(NODES):
            pass  # closed before the end of the body: this connection cannot be reused
        await body_of(transport)
        assert len(peers) == 2


async def test_a_truncated_body_is_an_error() -> None:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Length": "100"})
        await stream.prepare(request)
        await stream.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return stream

    async with serve(handle) as url, HttpTransport(url, credentials=StaticToken()) as transport:
        assert await failure_of(transport) == "the response broke off: the connection was cut"
        with pytest.raises(Unavailable, match="the connection was cut"):
            async with transport.open(NODES) as broken:
                assert [chunk async for chunk in broken.chunks()] == [b"half"]


async def test_a_connection_dropped_before_the_response() -> None:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with serve(handle) as url, HttpTransport(url, credentials=StaticToken()) as transport:
        post = Request(method="POST", path="/api/v1/nodes", body=b"{}")
        assert await failure_of(transport, post) in (
            "the server closed the connection before it answered",
            "the server reset the connection",
        )


@pytest.mark.parametrize(("method", "times"), [("POST", 1), ("PATCH", 1), ("PUT", 2)])
async def test_only_idempotent_requests_are_repeated(method: str, times: int) -> None:
    received: list[str] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        received.append(request.method)
        if received.count(method) == 1 and request.method == method:
            assert request.transport is not None
            request.transport.close()  # a reused connection is dropped
        return web.Response(body=b"{}")

    async with serve(handle) as url, HttpTransport(url, credentials=StaticToken()) as transport:
        await body_of(transport)
        change = Request(method=method, path="/api/v1/nodes/a", body=b"{}")
        if times == 1:
            assert (
                await failure_of(transport, change)
                == "the server closed the connection before it answered"
            )
        else:
            assert await body_of(transport, change) == b"{}"
    assert received == ["GET", *[method] * times]


async def test_a_response_that_is_not_http() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nXX\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, HttpTransport(url, credentials=StaticToken()) as transport:
        assert "Invalid character in chunk size" in await failure_of(transport)


async def test_a_port_without_a_listener() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        async with HttpTransport(url, credentials=StaticToken()) as transport:
            assert await failure_of(transport) == "connection refused: nothing listens there"


async def test_an_unknown_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    async with HttpTransport(
        "https://no-such-host.invalid:6443", credentials=StaticToken()
    ) as transport:
        assert await failure_of(transport) == (
            "the host name no-such-host.invalid cannot be resolved; check the name and DNS"
        )


async def test_an_invalid_url() -> None:
    async with HttpTransport("6443", credentials=StaticToken()) as transport:
        assert await failure_of(transport) == "this is not the address of a server"


async def test_a_closed_transport_sends_nothing() -> None:
    transport = HttpTransport("http://127.0.0.1:1", credentials=StaticToken())
    await transport.close()
    assert await failure_of(transport) == "this client is closed"


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with serve(echo) as url, HttpTransport(url, credentials=StaticToken()) as transport:
        assert b'"path": "/api/v1/nodes"' in await body_of(transport)
        through = HttpTransport(url, credentials=StaticToken(), proxy="http://127.0.0.1:1")
        assert await failure_of(through) == (
            "the proxy cannot be reached: connection refused: nothing listens there"
        )
        await through.close()


async def test_tls_with_the_authority_of_this_cluster(
    authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch, stranger: CertificateAuthority
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(stranger.ca))
    monkeypatch.setenv("SSL_CERT_FILE", str(stranger.ca))
    async with serve(echo, tls=authority.server()) as url:
        async with HttpTransport(url, credentials=trusting(authority)) as transport:
            assert b'"method": "GET"' in await body_of(transport)
        async with HttpTransport(url, credentials=trusting(stranger)) as transport:
            message = await failure_of(transport)
            assert message.startswith("the server's certificate is not signed by a trusted")
            assert message.endswith("configure the CA file of this cluster")


async def test_tls_with_a_certificate_for_another_name(authority: CertificateAuthority) -> None:
    tls = authority.server(names="DNS:api.example")
    async with serve(echo, tls=tls) as url:
        async with HttpTransport(url, credentials=trusting(authority)) as transport:
            assert (await failure_of(transport)).startswith(
                "the server's certificate is for another name: IP"
            )
        named = HttpTransport(url, credentials=trusting(authority), server_name="api.example")
        async with named as transport:
            assert b'"method": "GET"' in await body_of(transport)


async def test_tls_to_a_plain_server(authority: CertificateAuthority) -> None:
    async with serve(echo) as url:
        wrong = url.replace("http:", "https:")
        async with HttpTransport(wrong, credentials=trusting(authority)) as transport:
            assert (await failure_of(transport)).endswith("is this the server's HTTPS port?")


async def test_tls_without_the_required_client_certificate(authority: CertificateAuthority) -> None:
    async with serve(echo, tls=authority.server(clients=True)) as url:
        async with HttpTransport(url, credentials=trusting(authority)) as transport:
            assert await failure_of(transport) in (
                "the server closed the connection before it answered",
                "the server reset the connection",
            )
        tls = ssl.create_default_context(cafile=authority.ca)
        tls.load_cert_chain(*authority.issue("client"))
        async with HttpTransport(url, credentials=StaticToken(tls=tls)) as transport:
            assert b'"method": "GET"' in await body_of(transport)


async def test_a_timeout_names_server_and_seconds() -> None:
    over = asyncio.Event()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        await over.wait()
        return web.Response()

    async with serve(handle) as url, HttpTransport(url, credentials=StaticToken()) as transport:
        kube = Kube(transport, manager="test", clock=SystemClock())
        with pytest.raises(TimedOut) as late:
            await kube.request("GET", "/version", within=0.05)
        assert str(late.value) == (
            f"GET /version: no complete response from {url} within 0.05 s; "
            f"check the server and the network"
        )
        with pytest.raises(TimedOut):
            async with kube.stream("/version", query={}, within=0.05):
                pytest.fail("it has not answered")
        over.set()


class RotatingCredentials:
    """Credentials that change with each refresh."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens)
        self.closed = False

    async def current(self) -> RequestAuth:
        return RequestAuth(headers={"authorization": self._tokens[0]})

    async def refresh(self, rejected: RequestAuth) -> RequestAuth | None:
        assert rejected.headers == {"authorization": self._tokens[0]}
        if len(self._tokens) == 1:
            return None
        del self._tokens[0]
        return await self.current()

    async def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("keys", "statuses"),
    [
        (["new"], [200]),
        (["old", "new"], [401, 200]),
        (["old"], [401]),
        (["old", "older", "new"], [401, 401]),
    ],
)
async def test_rejected_credentials_refresh_once(keys: list[str], statuses: list[int]) -> None:
    seen: list[int] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(200 if request.headers["authorization"] == "new" else 401)
        return web.json_response({"message": "Unauthorized", "code": seen[-1]}, status=seen[-1])

    credentials = RotatingCredentials(*keys)
    async with serve(handle) as url, HttpTransport(url, credentials=credentials) as transport:
        kube = Kube(transport, manager="test", clock=SystemClock())
        if statuses[-1] == 200:
            await kube.request("POST", "/api/v1/nodes", body={})
        else:
            with pytest.raises(Unauthorized, match="wrong or expired; log in again"):
                await kube.request("POST", "/api/v1/nodes", body={})
    assert seen == statuses
    assert credentials.closed
