"""The server over HTTP: who comes in, streams, and connections that are really cut."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from libs.runtime.clock import SystemClock
from libs.runtime.ids import SeededIds
from libs.testing.apiserver.faults import Cut, Delay, DropWatch, Fault
from libs.testing.apiserver.http import HttpFrontend, serve_http
from libs.testing.apiserver.server import ApiServer
from tests.component.testing.apiserver.world import NODES
from tests.support import eventually

WATCH = {"watch": "1", "resourceVersion": "0"}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    source = random.Random(1)
    server = ApiServer(clock=SystemClock(), ids=SeededIds(source), random=source)
    server.add_token("t", "ann")
    yield server
    await server.stop()


@pytest.fixture
async def served(server: ApiServer) -> AsyncIterator[HttpFrontend]:
    async with serve_http(server) as served:
        yield served


@pytest.fixture
async def client(served: HttpFrontend) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": "Bearer t"}
    async with aiohttp.ClientSession(served.url, headers=headers) as client:
        yield client


async def create(client: aiohttp.ClientSession, name: str) -> int:
    async with client.post(NODES, json={"metadata": {"name": name}}) as answer:
        return answer.status


async def test_who_has_no_token_is_nobody(
    served: HttpFrontend, client: aiohttp.ClientSession
) -> None:
    async with aiohttp.ClientSession(served.url) as stranger:
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic t"}):
            async with stranger.get(NODES, headers=headers) as answer:
                assert answer.status == 401
                assert (await answer.json())["reason"] == "Unauthorized"
    review = {"spec": {"token": "t"}}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    async with client.post(path, json=review) as answer:
        status = (await answer.json())["status"]
    assert (answer.status, status["authenticated"], status["user"]["username"]) == (
        201,
        True,
        "ann",
    )


async def test_a_kubeconfig_leads_in(
    server: ApiServer, served: HttpFrontend, tmp_path: Path
) -> None:
    content = json.loads(served.kubeconfig(tmp_path, "system:node:n1").read_text())
    url = content["clusters"][0]["cluster"]["server"]
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{url}{NODES}", json={"metadata": {"name": "n1"}}) as answer,
    ):
        assert answer.status == 201
    (made,) = server.journal.revisions
    assert (made.user, made.manager) == ("system:node:n1", "Python")


async def test_a_watch_is_a_stream_that_ends_with_its_listener(
    server: ApiServer, client: aiohttp.ClientSession
) -> None:
    assert await create(client, "n1") == 201
    async with client.get(NODES, params=WATCH) as answer:
        assert answer.headers["Transfer-Encoding"] == "chunked"
        first = json.loads(await answer.content.readline())
        assert await create(client, "n2") == 201
        second = json.loads(await answer.content.readline())
        assert server.open_watches == 1
        answer.close()
    names = [event["object"]["metadata"]["name"] for event in (first, second)]
    assert names == ["n1", "n2"]
    await eventually(lambda: server.open_watches == 0)


async def test_a_cut_is_one_on_the_wire(server: ApiServer, client: aiohttp.ClientSession) -> None:
    faults = server.faults
    faults.add(Fault(effect=Cut("before"), verbs=("create",), times=1))
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await create(client, "n1")
    faults.add(Fault(effect=Cut("after"), verbs=("create",), times=1))
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await create(client, "n1")
    assert await create(client, "n1") == 409
    faults.add(Fault(effect=Cut("body"), verbs=("list",), times=1))
    async with client.get(NODES) as answer:
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    faults.add(Fault(effect=DropWatch(after=1, clean=False), times=1))
    async with client.get(NODES, params=WATCH) as answer:
        assert json.loads(await answer.content.readline())["type"] == "ADDED"
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.content.readline()
    faults.add(Fault(effect=DropWatch(after=1), times=1))
    async with client.get(NODES, params=WATCH) as answer:
        assert len((await answer.read()).splitlines()) == 1


async def test_a_write_goes_on_when_its_client_hangs_up(
    server: ApiServer, client: aiohttp.ClientSession
) -> None:
    server.faults.add(Fault(effect=Delay(0.3), verbs=("create",), times=1))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await create(client, "n1")
    assert list(server.journal.revisions) == []
    await eventually(lambda: len(server.journal) == 1)
    async with client.get(f"{NODES}/n1") as answer:
        assert answer.status == 200


async def test_a_server_that_is_down_answers_nothing(
    server: ApiServer, client: aiohttp.ClientSession
) -> None:
    await server.stop()
    with pytest.raises(aiohttp.ClientConnectionError):
        await create(client, "n1")
    await server.start()
    assert await create(client, "n1") == 201
