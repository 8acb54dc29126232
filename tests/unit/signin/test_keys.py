"""The issuer's keys: where they are read, how often, and what stays when they cannot be."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from libs.kube.errors import Unavailable
from libs.kube.requests import Request, Response
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim, run
from libs.testing.tokens import ISSUER, TokenIssuer
from services.signin.key_sources import (
    MAX_DOCUMENT,
    AddressKeys,
    ClusterKeys,
    FileKeys,
    Issuer,
    KeySettings,
    KeysUnavailable,
)
from services.signin.keys import UNKNOWN_PERIOD, TrustedKeys
from tests.support import in_virtual_time, played_by
from tests.unit.kube.raw_http import RawResponse, ScriptedTransport
from tests.unit.signin.tokens import CLOCK

Story = Callable[["World"], Coroutine[Any, Any, None]]


class Counting:
    """A source whose readings are counted, and fail or wait as a test says."""

    def __init__(self, sim: Sim) -> None:
        self.tokens = TokenIssuer(clock=sim.clock)
        self.readings = 0
        self.problem = ""
        self.seconds = 0.0
        self._clock = sim.clock

    async def read(self) -> Issuer:
        self.readings += 1
        await self._clock.sleep(self.seconds)
        if self.problem:
            raise KeysUnavailable(self.problem)
        keys = json.loads(self.tokens.jwks())["keys"]
        return Issuer(self.tokens.issuer, {key["kid"]: key for key in keys})


class World:
    def __init__(self, sim: Sim) -> None:
        self.clock = sim.clock
        self.source = Counting(sim)
        self.trusted = TrustedKeys(self.source, env=sim.env("keys"))

    @property
    def keys(self) -> list[str]:
        assert self.trusted.issuer is not None
        return list(self.trusted.issuer.keys)


def play(story: Story) -> None:
    async def main(sim: Sim) -> None:
        world = World(sim)
        task = asyncio.create_task(world.trusted.run())
        try:
            await story(world)
        finally:
            task.cancel()
            await asyncio.wait({task})

    run(main, seed=1)


in_world = played_by(play)


@in_world
async def test_keys_are_read_every_five_minutes_or_so(world: World) -> None:
    assert world.trusted.unready_reason() == "the keys of tokens are not read yet"
    await world.clock.sleep(1)
    assert (world.source.readings, world.trusted.unready_reason()) == (1, None)
    await world.clock.sleep(24 * 3600)
    assert 24 * 10 < world.source.readings < 24 * 15
    first = world.keys
    world.source.tokens.rotate()
    await world.clock.sleep(360)
    assert set(world.keys) > set(first)


@in_world
async def test_the_last_keys_stay_while_none_can_be_read(world: World) -> None:
    await world.clock.sleep(1)
    known = world.keys
    world.source.problem = "no route"
    await world.clock.sleep(3600)
    assert world.keys == known
    assert world.trusted.unready_reason() is None
    assert world.trusted.problem == "the keys of tokens cannot be read: no route"
    assert world.source.readings > 60
    world.source.problem = ""
    await world.clock.sleep(60)
    assert world.trusted.problem == ""


@in_world
async def test_unknown_keys_cause_one_reading_a_minute(world: World) -> None:
    world.source.seconds = 0.5
    await world.clock.sleep(1)
    before = world.source.readings
    for _ in range(3):
        asked = [asyncio.create_task(world.trusted.read_for_unknown()) for _ in range(1000)]
        await asyncio.wait(asked)
        assert {task.result() for task in asked} == {True}
        for _ in range(1000):
            assert not await world.trusted.read_for_unknown()
        await world.clock.sleep(UNKNOWN_PERIOD)
    assert world.source.readings - before == 3


@in_world
async def test_a_failed_reading_for_an_unknown_key_is_not_repeated_at_once(world: World) -> None:
    await world.clock.sleep(1)
    before = world.source.readings
    world.source.problem = "no route"
    assert not await world.trusted.read_for_unknown()
    assert not await world.trusted.read_for_unknown()
    assert world.source.readings - before == 1
    assert len(world.keys) == 1


class Broken:
    """A transport to a server that is away."""

    def __str__(self) -> str:
        return "https://api:6443"

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        raise Unavailable(str(request), "no route to host")
        yield


def reading(*responses: RawResponse, issuer: str = "") -> Issuer:
    """Return what the API server's answers are read as."""

    async def main(sim: Sim) -> Issuer:
        transport = ScriptedTransport()
        transport.reply(*responses)
        return await ClusterKeys(transport, clock=sim.clock, issuer=issuer).read()

    return run(main, seed=1)


def test_the_api_server_names_issuer_and_keys() -> None:
    async def main(sim: Sim) -> tuple[Issuer, TokenIssuer]:
        server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random)
        found = await ClusterKeys(server.transport(user="us"), clock=sim.clock).read()
        return found, server.issuer

    found, issuer = run(main, seed=1)
    assert (found.name, set(found.keys)) == (ISSUER, {key.id for key in issuer.keys})


KEYS = RawResponse(content=TokenIssuer(clock=CLOCK).jwks())


@pytest.mark.parametrize(
    ("responses", "why"),
    [
        ([RawResponse(status=403)], "answered 403; grant it in RBAC"),
        ([RawResponse(content=b"<html>")], "openid-configuration is not JSON"),
        ([RawResponse(content=b"[]")], "openid-configuration is not JSON"),
        ([RawResponse(content=b'{"issuer": 1}')], "names no issuer"),
        ([RawResponse(content=b'{"issuer": "i"}'), RawResponse(content=b"{}")], "/openid/v1/jwks"),
        ([RawResponse(content=b" " * (MAX_DOCUMENT + 1))], "more than 1048576 bytes"),
        ([RawResponse(cut=True)], "the connection was cut"),
        ([RawResponse(late=60.0)], "not answered within 5 s"),
    ],
)
def test_what_the_api_server_answers_instead(responses: list[RawResponse], why: str) -> None:
    with pytest.raises(KeysUnavailable, match=why):
        reading(*responses)


def test_the_issuer_may_be_named() -> None:
    assert reading(KEYS, issuer="https://mine").name == "https://mine"


def test_the_api_server_is_away() -> None:
    async def main(sim: Sim) -> None:
        await ClusterKeys(Broken(), clock=sim.clock).read()

    with pytest.raises(KeysUnavailable, match="no route to host"):
        run(main, seed=1)


@in_virtual_time
async def test_keys_are_read_at_an_address_without_a_token(sim: Sim) -> None:
    transport = ScriptedTransport()
    transport.reply(KEYS)
    source = AddressKeys(
        transport, issuer="https://i", url="https://keys.example/a/b?v=2", clock=sim.clock
    )
    found = await source.read()
    (request,) = transport.requests
    assert (request.path, request.query) == ("/a/b", {"v": "2"})
    assert "authorization" not in request.headers
    assert (found.name, len(found.keys)) == ("https://i", 1)


async def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "jwks"
    source = FileKeys(str(path), issuer="https://i")
    with pytest.raises(KeysUnavailable, match="No such file"):
        await source.read()
    path.write_bytes(KEYS.content)
    assert (await source.read()).name == "https://i"
    path.write_bytes(b" " * (MAX_DOCUMENT + 1))
    with pytest.raises(KeysUnavailable, match="more than 1048576 bytes"):
        await source.read()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"jwks_url": "http://keys.example"}, "is no https:// address"),
        ({"jwks_url": "https://"}, "is no https:// address"),
        ({"jwks_url": "https://a:b@keys.example"}, "contains a password"),
        ({"jwks_url": "https://keys.example"}, "issuer is not set"),
        ({"jwks_file": "/keys"}, "issuer is not set"),
        ({"jwks_file": "/keys", "jwks_url": "https://keys.example"}, "both set"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, str], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        KeySettings(**settings)
