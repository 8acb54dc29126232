"""A cache over real sockets: the server stops and restarts, connections break in a body."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.errors import Unavailable
from libs.kube.http import HttpTransport, StaticToken
from libs.runtime.clock import SystemClock
from libs.runtime.env import SeededIds
from libs.testing.apiserver.faults import (
    ActiveFault,
    Cut,
    DropWatch,
    Fault,
    FaultEffect,
    RefuseRequest,
    SlowBody,
)
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.server import ApiServer
from libs.testing.child_process import ReservedPort
from libs.testing.simulation import make_env
from tests.support import eventually
from tests.unit.kube.world import (
    CLIENT,
    CONFIG_MAP_VIEWS,
    NAMESPACE,
    ConfigMapView,
    error_of,
    manifest,
    running,
)


class ShortPauses(random.Random):
    """Random pauses too short to slow a test."""

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * 0.01


class World:
    """A server whose port can be closed, and a cache that connects to it."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.server = ApiServer(
            clock=self.clock, ids=SeededIds(random.Random(1)), random=random.Random(2)
        )
        self._port = ReservedPort()
        self._listener = AsyncExitStack()
        token = StaticToken(self.server.token_of(CLIENT))
        self._wire = HttpTransport(f"http://127.0.0.1:{self._port.number}", credentials=token)
        self.kube = Kube(self._wire, manager=CLIENT, clock=self.clock)
        self.cache = Cache(
            self.kube,
            CONFIG_MAP_VIEWS,
            env=make_env(clock=self.clock, random=ShortPauses(3)),
            namespace=NAMESPACE,
        )
        inside = self.server.transport(user="other")
        self.other = Kube(inside, manager="other", clock=self.clock)

    async def open(self) -> None:
        """Listen, always on the same port."""
        await self.server.start()
        await self._listener.enter_async_context(serve_http(self.server, port=self._port.number))

    async def kill(self) -> None:
        """Stop like a killed process."""
        await self.server.stop()
        await self._listener.aclose()

    async def close(self) -> None:
        await self._wire.close()
        await self._listener.aclose()
        self._port.release()

    def inject(self, effect: FaultEffect, *verbs: str) -> ActiveFault:
        """Add a fault that hits this client once."""
        return self.server.faults.add(Fault(effect=effect, verbs=verbs, user=CLIENT, times=1))

    async def write(self, name: str, value: str) -> None:
        await self.other.apply(
            CONFIG_MAP_VIEWS, manifest(name, value), force=True, namespace=NAMESPACE
        )

    async def remove(self, name: str) -> None:
        view = await self.other.get(CONFIG_MAP_VIEWS, name, namespace=NAMESPACE)
        await self.other.delete(CONFIG_MAP_VIEWS, name, uid=view.metadata.uid, namespace=NAMESPACE)

    async def agrees(self) -> bool:
        """Return whether the cache equals the server, revisions included."""
        existing = (await self.other.list_page(CONFIG_MAP_VIEWS, namespace=NAMESPACE)).items
        return sorted(self.cache, key=_name) == sorted(existing, key=_name)


def _name(view: ConfigMapView) -> str:
    return view.metadata.name


@asynccontextmanager
async def _following(world: World) -> AsyncGenerator[None]:
    async with running(world.cache.run()):
        yield
    await eventually(lambda: world.server.open_watches == 0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.open()
    yield world
    await world.close()


async def test_a_cache_reconnects_to_a_killed_server(world: World) -> None:
    await world.write("a", "1")
    await world.write("b", "1")
    async with _following(world):
        await world.cache.wait_synced()
        for round_ in range(3):
            await world.kill()
            error = await error_of(
                world.kube.create(CONFIG_MAP_VIEWS, manifest("mine"), namespace=NAMESPACE)
            )
            assert type(error) is Unavailable
            assert "nothing listens there" in error.message
            await eventually(lambda: "nothing listens there" in world.cache.problem)
            await world.server.start()  # the in-process transports stay connected
            await world.write("a", f"changed in round {round_}")
            await world.write(f"c{round_}", "1")
            await world.remove("b")
            await world.write("b", f"recreated in round {round_}")
            assert not await world.agrees()
            await world.open()
            await eventually(world.agrees)
            await eventually(lambda: world.cache.problem == "")
        assert await world.cache.verify_current(within=5.0)


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_a_body_cut_in_the_middle_is_requested_again(world: World, verb: str) -> None:
    for number in range(50):
        await world.write(f"m{number}", "1")
    fault = world.inject(Cut("body"), verb)
    async with _following(world):
        await world.cache.wait_synced()
        await eventually(lambda: world.server.open_watches == 1)
        await world.write("m7", "2")
        await world.remove("m8")
        await eventually(world.agrees)
        assert len(world.cache) == 49
        assert fault.hit_count == 1


async def test_a_write_whose_response_is_cut_over_http_is_done(world: World) -> None:
    for cut, name in ((Cut("after"), "a"), (Cut("body"), "b")):
        fault = world.inject(cut, "create")
        error = await error_of(
            world.kube.create(CONFIG_MAP_VIEWS, manifest(name), namespace=NAMESPACE)
        )
        assert type(error) is Unavailable
        assert fault.hit_count == 1
    created = [entry.name for entry in world.server.journal.revisions if entry.user == CLIENT]
    assert created == ["a", "b"]


@pytest.mark.parametrize("seed", range(2))
async def test_a_cache_equals_the_server_after_a_storm_over_http(world: World, seed: int) -> None:
    chance = random.Random(seed)
    faults: list[ActiveFault] = []
    names = [f"m{number}" for number in range(20)]
    async with _following(world):
        for _ in range(6):
            for effect, verbs in (
                (Cut("before"), ()),
                (Cut("after"), ("list",)),
                (Cut("body"), ()),
                (DropWatch(chance.randrange(3), clean=chance.random() < 0.5), ()),
                (SlowBody(700, 0.001), ()),
                (RefuseRequest(chance.choice([401, 429, 500, 503])), ()),
            ):
                faults.append(world.inject(effect, *verbs))
            for _ in range(15):
                name = chance.choice(names)
                existing = {view.metadata.name for view in await _page(world)}
                if name in existing and chance.random() < 0.4:
                    await world.remove(name)
                else:
                    await world.write(name, str(chance.random()))
                await asyncio.sleep(0)
            await _disturb(world, chance)

        async def used_up() -> bool:
            world.server.faults.drop_watches(user=CLIENT)
            await world.cache.verify_current(within=1.0)
            return all(active.hit_count == 1 for active in faults)

        await eventually(used_up)
        await eventually(world.agrees)
        assert await world.cache.verify_current(within=10.0)


async def _page(world: World) -> tuple[ConfigMapView, ...]:
    return (await world.other.list_page(CONFIG_MAP_VIEWS, namespace=NAMESPACE)).items


async def _disturb(world: World, chance: random.Random) -> None:
    match chance.randrange(4):
        case 0:
            await world.kill()
            await world.open()
        case 1:
            await world.server.restart()
        case 2:
            await world.server.compact()
        case _:
            world.server.faults.drop_watches(clean=chance.random() < 0.5)
