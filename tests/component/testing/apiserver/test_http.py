"""The server over HTTP: tokens, streams, and connections that are cut on the wire."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from libs.runtime.clock import SystemClock
from libs.runtime.env import SeededIds
from libs.testing.apiserver.faults import Delay, Fault
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
async def frontend(server: ApiServer) -> AsyncIterator[HttpFrontend]:
    async with serve_http(server) as frontend:
        yield frontend


@pytest.fixture
async def client(frontend: HttpFrontend) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": "Bearer t"}
    async with aiohttp.ClientSession(frontend.url, headers=headers) as client:
        yield client


async def create(client: aiohttp.ClientSession, name: str) -> int:
    async with client.post(NODES, json={"metadata": {"name": name}}) as response:
        return response.status


async def test_a_request_without_a_valid_token_is_unauthorized(frontend: HttpFrontend) -> None:
    async with aiohttp.ClientSession(frontend.url) as client:
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic t"}):
            async with client.get(NODES, headers=headers) as response:
                assert response.status == 401
                assert (await response.json())["reason"] == "Unauthorized"


async def test_a_kubeconfig_authenticates_its_user_by_the_url(
    server: ApiServer, frontend: HttpFrontend, tmp_path: Path
) -> None:
    content = json.loads(frontend.kubeconfig(tmp_path, "system:node:n1").read_text())
    url = content["clusters"][0]["cluster"]["server"]
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{url}{NODES}", json={"metadata": {"name": "n1"}}) as response,
    ):
        assert response.status == 201
    (record,) = server.journal.revisions
    assert (record.user, record.manager) == ("system:node:n1", "Python")


async def test_a_write_is_executed_after_its_client_disconnected(
    server: ApiServer, client: aiohttp.ClientSession
) -> None:
    server.faults.add(Fault(effect=Delay(0.3), verbs=("create",), times=1))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await create(client, "n1")
    assert list(server.journal.revisions) == []
    await eventually(lambda: len(server.journal) == 1)


async def test_a_stopped_server_refuses_connections(
    server: ApiServer, client: aiohttp.ClientSession
) -> None:
    await server.stop()
    with pytest.raises(aiohttp.ClientConnectionError):
        await create(client, "n1")
    await server.start()
    assert await create(client, "n1") == 201
