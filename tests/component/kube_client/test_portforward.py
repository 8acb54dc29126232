"""Ports of pods over a websocket: bytes both ways, ends of either side, and refusals."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from libs.kube import portforward
from libs.kube.errors import Forbidden, KubeError, TimedOut, Unauthorized, Unavailable
from libs.kube.http import HttpTransport, RequestAuth, StaticToken
from libs.kube.portforward import PROTOCOL, PortForwards
from tests.component.kube_client.web import serve
from tests.support import eventually

PORT = 4222
FIRST = PORT.to_bytes(2, "little")
Script = Callable[[web.WebSocketResponse], Awaitable[None]]


class Kubelet:
    """Plays a script for each websocket, and keeps what it was asked."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.asked: list[web.BaseRequest] = []
        self.ended = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request)
        websocket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await websocket.prepare(request)
        for channel in (b"\0", b"\1"):
            await websocket.send_bytes(channel + FIRST)
        await self._script(websocket)
        await websocket.close()
        self.ended += 1
        return websocket


async def echo(websocket: web.WebSocketResponse) -> None:
    async for message in websocket:
        await websocket.send_bytes(message.data)


@asynccontextmanager
async def forwards_to(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
) -> AsyncGenerator[PortForwards]:
    async with (
        serve(handler) as url,
        HttpTransport(url, credentials=StaticToken("secret")) as transport,
        PortForwards(transport, user_agent="sluice") as forwards,
    ):
        yield forwards


async def opened(forwards: PortForwards) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    stream = await forwards.open("nats-0", PORT, namespace="gpus")
    return await asyncio.open_connection(sock=stream)


async def test_bytes_arrive_both_ways_however_many_there_are() -> None:
    kubelet = Kubelet(echo)
    sent = bytes(range(256)) * 2**14
    async with forwards_to(kubelet) as forwards:
        reader, writer = await opened(forwards)
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        writer.close()
        await eventually(lambda: kubelet.ended == 1, within=10)
        assert forwards.problem == ""
    (asked,) = kubelet.asked
    assert asked.path == "/api/v1/namespaces/gpus/pods/nats-0/portforward"
    assert asked.query["ports"] == "4222"
    assert asked.headers["authorization"] == "Bearer secret"
    assert asked.headers["user-agent"] == "sluice"


async def test_no_port_of_this_machine_is_opened() -> None:
    async with forwards_to(Kubelet(echo)) as forwards:
        stream = await forwards.open("nats-0", PORT, namespace="gpus")
        assert stream.family == socket.AF_UNIX
        assert stream.getsockname() == stream.getpeername() == ""
        stream.close()


async def test_what_the_pod_sent_before_its_end_is_read() -> None:
    async def send_and_end(websocket: web.WebSocketResponse) -> None:
        await websocket.send_bytes(b"\0" + b"-ERR 'gone'\r\n" * 5000)

    async with forwards_to(Kubelet(send_and_end)) as forwards:
        reader, writer = await opened(forwards)
        assert await reader.read() == b"-ERR 'gone'\r\n" * 5000
        writer.close()


async def test_a_port_on_which_nothing_listens_ends_the_stream_and_says_why() -> None:
    async def refuse(websocket: web.WebSocketResponse) -> None:
        await websocket.send_bytes(b"\1error forwarding port 4222: connection refused")

    async with forwards_to(Kubelet(refuse)) as forwards:
        reader, writer = await opened(forwards)
        assert await reader.read() == b""
        assert forwards.problem == "error forwarding port 4222: connection refused"
        writer.close()


@pytest.mark.parametrize("text", [True, False])
async def test_another_protocol_ends_the_stream(text: bool) -> None:
    async def speak(websocket: web.WebSocketResponse) -> None:
        await (websocket.send_str("hello") if text else websocket.send_bytes(b"\7hello"))
        await websocket.receive()

    async with forwards_to(Kubelet(speak)) as forwards:
        reader, writer = await opened(forwards)
        assert await reader.read() == b""
        assert ("type TEXT" if text else "channel 7") in forwards.problem
        writer.close()


async def test_the_end_of_the_block_ends_all_streams_at_once() -> None:
    kubelet = Kubelet(echo)
    async with forwards_to(kubelet) as forwards:
        streams = [await opened(forwards) for _ in range(3)]
        started = asyncio.get_running_loop().time()
        await forwards.__aexit__()
        assert asyncio.get_running_loop().time() - started < 1.0
        assert [await reader.read() for reader, _ in streams] == [b""] * 3
        await eventually(lambda: kubelet.ended == 3, within=10)
        for _, writer in streams:
            writer.close()


async def refused_by(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], kind: type[KubeError]
) -> str:
    async with forwards_to(handler) as forwards:
        with pytest.raises(kind) as failed:
            await forwards.open("nats-0", PORT, namespace="gpus")
    return str(failed.value)


async def test_a_refusal_is_told_in_the_servers_words() -> None:
    async def forbid(_request: web.BaseRequest) -> web.StreamResponse:
        status = {"kind": "Status", "message": 'pods "nats-0" is forbidden', "code": 403}
        return web.json_response(status, status=403)

    said = await refused_by(forbid, Forbidden)
    assert said.startswith("GET /api/v1/namespaces/gpus/pods/nats-0/portforward: pods")


async def test_a_proxy_that_passes_no_websocket_on_is_named() -> None:
    async def greet(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="hello")

    said = await refused_by(greet, KubeError)
    assert "hello" in said


async def test_a_node_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portforward, "OPEN_SECONDS", 0.5)

    async def hang(_request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError

    said = await refused_by(hang, TimedOut)
    assert "no way to the pod from http://127.0.0.1" in said


async def test_a_server_that_is_away_is_told() -> None:
    async with (
        HttpTransport("http://127.0.0.1:1", credentials=StaticToken()) as transport,
        PortForwards(transport, user_agent="sluice") as forwards,
    ):
        with pytest.raises(Unavailable, match="connection refused"):
            await forwards.open("nats-0", PORT, namespace="gpus")


class Renewed(StaticToken):
    """Has another token after a refusal, once."""

    async def refresh(self, rejected: RequestAuth) -> RequestAuth | None:
        return RequestAuth(headers={"authorization": "Bearer new"})


async def test_a_refused_token_is_read_again_once() -> None:
    kubelet = Kubelet(echo)
    accepted = "Bearer new"

    async def check(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers["authorization"] != accepted:
            return web.json_response({"kind": "Status", "code": 401}, status=401)
        return await kubelet(request)

    async with serve(check) as url, HttpTransport(url, credentials=Renewed("old")) as transport:
        async with PortForwards(transport, user_agent="sluice") as forwards:
            (await forwards.open("nats-0", PORT, namespace="gpus")).close()
        accepted = "Bearer newer"
        async with PortForwards(transport, user_agent="sluice") as forwards:
            with pytest.raises(Unauthorized):
                await forwards.open("nats-0", PORT, namespace="gpus")
