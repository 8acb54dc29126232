"""The transport over HTTP: what goes out, what comes back however large, and failures in words."""

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


async def asked(transport: HttpTransport, request: Request = NODES) -> bytes:
    async with transport.open(request) as answer:
        return await answer.body()


async def why(transport: HttpTransport, request: Request = NODES) -> str:
    with pytest.raises(Unavailable) as failed:
        await asked(transport, request)
    assert failed.value.tried == f"{request.method} {request.path}"
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
        HttpTransport(f"{url}/", credentials=StaticToken("secret")) as way,
        way.open(request) as answer,
    ):
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json; charset=utf-8"
        got = msgspec.json.decode(await answer.body())
    assert (got["method"], got["body"]) == ("PATCH", '{"ä":1}')
    assert got["path"].partition("?")[0] == "/api/v1/nodes/a.b-c.d"
    assert got["query"] == request.query
    assert got["headers"]["content-type"] == "application/apply-patch+yaml"
    assert got["headers"]["authorization"] == "Bearer secret"
    assert got["headers"]["accept-encoding"] == "identity"


async def test_a_name_is_quoted_in_the_path() -> None:
    seen: list[str] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.raw_path)
        return web.Response()

    async with serve(answer) as url, HttpTransport(url, credentials=StaticToken()) as way:
        for name in ("system:node", "a?b=c", "a%2fb", "ä#x"):
            await asked(way, Request(method="GET", path=f"/api/v1/nodes/{name}"))
    assert seen == [
        "/api/v1/nodes/system:node",
        "/api/v1/nodes/a%3Fb%3Dc",
        "/api/v1/nodes/a%252fb",
        "/api/v1/nodes/%C3%A4%23x",
    ]


async def test_errors_are_responses_and_redirects_are_not_followed() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/moved":
            return web.Response(status=302, headers={"Location": "/"})
        return web.Response(status=429, headers={"Retry-After": "7"}, text="slowly")

    async with serve(answer) as url, HttpTransport(url, credentials=StaticToken()) as way:
        async with way.open(NODES) as refused:
            assert (refused.status, refused.headers["retry-after"]) == (429, "7")
            assert await refused.body() == b"slowly"
        async with way.open(Request(method="GET", path="/moved")) as moved:
            assert moved.status == 302


async def test_long_lines_and_watches_beside_requests() -> None:
    line = b"x" * 1_600_000
    go_on = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=b"at once")
        stream = web.StreamResponse()
        await stream.prepare(request)
        await stream.write(b"first\n" + line + b"\nsec")
        await go_on.wait()
        await stream.write(b"ond\n")
        return stream

    watch = Request(method="GET", path="/api/v1/nodes", query={"watch": "true"})

    async def lines(way: HttpTransport) -> AsyncGenerator[bytes]:
        splitting = LineBuffer()
        async with way.open(watch) as answer:
            async for chunk in answer.chunks():
                for each in splitting.feed(chunk):
                    yield each

    async with (
        serve(answer) as url,
        HttpTransport(url, credentials=StaticToken()) as way,
        asyncio.timeout(20),
        aclosing(lines(way)) as first,
    ):
        assert [await anext(first), await anext(first)] == [b"first", line]
        others = [lines(way) for _ in range(150)]
        assert {await anext(other) for other in others} == {b"first"}
        assert await asked(way) == b"at once"
        go_on.set()
        assert [each async for each in first] == [b"second"]
        for other in others:
            await other.aclose()


async def test_connections_are_reused() -> None:
    peers: set[object] = set()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response(body=b"x" * 300_000)

    async with serve(answer) as url, HttpTransport(url, credentials=StaticToken()) as way:
        for _ in range(5):
            await asked(way)
        assert len(peers) == 1
        async with way.open(NODES):
            pass  # left before its end: that connection is of no more use
        await asked(way)
        assert len(peers) == 2


async def test_a_truncated_body_is_an_error() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Length": "100"})
        await stream.prepare(request)
        await stream.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return stream

    async with serve(answer) as url, HttpTransport(url, credentials=StaticToken()) as way:
        assert await why(way) == "the response broke off: the connection was cut"
        with pytest.raises(Unavailable, match="the connection was cut"):
            async with way.open(NODES) as broken:
                assert [chunk async for chunk in broken.chunks()] == [b"half"]


async def test_a_connection_dropped_before_the_response() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with serve(answer) as url, HttpTransport(url, credentials=StaticToken()) as way:
        post = Request(method="POST", path="/api/v1/nodes", body=b"{}")
        assert await why(way, post) in (
            "the server closed the connection before it answered",
            "the server reset the connection",
        )


@pytest.mark.parametrize(("method", "times"), [("POST", 1), ("PATCH", 1), ("PUT", 2)])
async def test_only_idempotent_requests_are_repeated(method: str, times: int) -> None:
    got: list[str] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        got.append(request.method)
        if got.count(method) == 1 and request.method == method:
            assert request.transport is not None
            request.transport.close()  # a connection that was used before and is dropped now
        return web.Response(body=b"{}")

    async with serve(answer) as url, HttpTransport(url, credentials=StaticToken()) as way:
        await asked(way)
        change = Request(method=method, path="/api/v1/nodes/a", body=b"{}")
        if times == 1:
            assert await why(way, change) == "the server closed the connection before it answered"
        else:
            assert await asked(way, change) == b"{}"
    assert got == ["GET", *[method] * times]


async def test_a_response_that_is_not_http() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nXX\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, HttpTransport(url, credentials=StaticToken()) as way:
        assert "Invalid character in chunk size" in await why(way)


async def test_a_port_without_a_listener() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        async with HttpTransport(url, credentials=StaticToken()) as way:
            assert await why(way) == "connection refused: nothing listens there"


async def test_an_unknown_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    async with HttpTransport("https://no-such-host.invalid:6443", credentials=StaticToken()) as way:
        assert await why(way) == (
            "the host name no-such-host.invalid cannot be resolved; check the name and DNS"
        )


async def test_an_invalid_url() -> None:
    async with HttpTransport("6443", credentials=StaticToken()) as way:
        assert await why(way) == "this is not the address of a server"


async def test_a_closed_transport_sends_nothing() -> None:
    way = HttpTransport("http://127.0.0.1:1", credentials=StaticToken())
    await way.close()
    assert await why(way) == "this client is closed"


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with serve(echo) as url, HttpTransport(url, credentials=StaticToken()) as way:
        assert b'"path": "/api/v1/nodes"' in await asked(way)
        through = HttpTransport(url, credentials=StaticToken(), proxy="http://127.0.0.1:1")
        assert await why(through) == (
            "the proxy cannot be reached: connection refused: nothing listens there"
        )
        await through.close()


async def test_tls_with_the_authority_of_this_cluster(
    authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch, stranger: CertificateAuthority
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(stranger.ca))
    monkeypatch.setenv("SSL_CERT_FILE", str(stranger.ca))
    async with serve(echo, tls=authority.server()) as url:
        async with HttpTransport(url, credentials=trusting(authority)) as way:
            assert b'"method": "GET"' in await asked(way)
        async with HttpTransport(url, credentials=trusting(stranger)) as way:
            words = await why(way)
            assert words.startswith("the server's certificate is not signed by a trusted")
            assert words.endswith("configure the CA file of this cluster")


async def test_tls_with_a_certificate_for_another_name(authority: CertificateAuthority) -> None:
    tls = authority.server(names="DNS:api.example")
    async with serve(echo, tls=tls) as url:
        async with HttpTransport(url, credentials=trusting(authority)) as way:
            assert (await why(way)).startswith("the server's certificate is for another name: IP")
        named = HttpTransport(url, credentials=trusting(authority), server_name="api.example")
        async with named as way:
            assert b'"method": "GET"' in await asked(way)


async def test_tls_to_a_plain_server(authority: CertificateAuthority) -> None:
    async with serve(echo) as url:
        wrong = url.replace("http:", "https:")
        async with HttpTransport(wrong, credentials=trusting(authority)) as way:
            assert (await why(way)).endswith("is this the server's HTTPS port?")


async def test_tls_without_the_required_client_certificate(authority: CertificateAuthority) -> None:
    async with serve(echo, tls=authority.server(clients=True)) as url:
        async with HttpTransport(url, credentials=trusting(authority)) as way:
            assert await why(way) in (
                "the server closed the connection before it answered",
                "the server reset the connection",
            )
        tls = ssl.create_default_context(cafile=authority.ca)
        tls.load_cert_chain(*authority.issue("client"))
        async with HttpTransport(url, credentials=StaticToken(tls=tls)) as way:
            assert b'"method": "GET"' in await asked(way)


async def test_a_timeout_names_server_and_seconds() -> None:
    over = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        await over.wait()
        return web.Response()

    async with serve(answer) as url, HttpTransport(url, credentials=StaticToken()) as way:
        kube = Kube(way, manager="test", clock=SystemClock())
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
    """Credentials of which there are several."""

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
    ("keys", "statuses"), [(["new"], [200]), (["old", "new"], [401, 200]), (["old"], [401]),
                           (["old", "older", "new"], [401, 401])],
)  # fmt: skip
async def test_rejected_credentials_refresh_once(keys: list[str], statuses: list[int]) -> None:
    seen: list[int] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(200 if request.headers["authorization"] == "new" else 401)
        return web.json_response({"message": "Unauthorized", "code": seen[-1]}, status=seen[-1])

    credentials = RotatingCredentials(*keys)
    async with serve(answer) as url, HttpTransport(url, credentials=credentials) as way:
        kube = Kube(way, manager="test", clock=SystemClock())
        if statuses[-1] == 200:
            await kube.request("POST", "/api/v1/nodes", body={})
        else:
            with pytest.raises(Unauthorized, match="wrong or expired; log in again"):
                await kube.request("POST", "/api/v1/nodes", body={})
    assert seen == statuses
    assert credentials.closed
