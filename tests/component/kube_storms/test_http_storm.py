"""The same over real sockets: the server goes away and comes back, connections break in a body."""

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
from libs.runtime.ids import SeededIds
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
from libs.testing.env import make_env
from libs.testing.ports import ReservedPort
from tests.component.kube_storms.world import (
    CLIENT,
    CONFIG_MAP_VIEWS,
    NAMESPACE,
    ConfigMapView,
    failure,
    running,
    wanted,
)
from tests.support import eventually


class ShortPauses(random.Random):
    """Draws pauses that no test has to wait for."""

    def uniform(self, a: float, b: float) -> float:
        """Near the lower end."""
        return a + (b - a) * 0.01


class World:
    """A server with a door that can be shut, and a cache that comes in by it."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.server = ApiServer(
            clock=self.clock, ids=SeededIds(random.Random(1)), random=random.Random(2)
        )
        self._port = ReservedPort()
        self._door = AsyncExitStack()
        token = StaticToken(self.server.token_of(CLIENT))
        self._wire = HttpTransport(f"http://127.0.0.1:{self._port.number}", credentials=token)
        self.kube = Kube(self._wire, manager=CLIENT, clock=self.clock)
        self.cache = Cache(
            self.kube,
            CONFIG_MAP_VIEWS,
            env=make_env(clock=self.clock, random=ShortPauses(3)),
            namespace=NAMESPACE,
        )
        inside = self.server.transport(user="bystander")
        self.bystander = Kube(inside, manager="bystander", clock=self.clock)

    async def open(self) -> None:
        """Its port is always the same."""
        await self.server.start()
        await self._door.enter_async_context(serve_http(self.server, port=self._port.number))

    async def kill(self) -> None:
        """As when its process is killed."""
        await self.server.stop()
        await self._door.aclose()

    async def close(self) -> None:
        """Nothing is left of it."""
        await self._wire.close()
        await self._door.aclose()
        self._port.release()

    def inject(self, does: FaultEffect, *verbs: str) -> ActiveFault:
        """It befalls us once."""
        return self.server.faults.add(Fault(effect=does, verbs=verbs, user=CLIENT, times=1))

    async def write(self, name: str, value: str) -> None:
        """The bystander makes a map, or changes it."""
        await self.bystander.apply(
            CONFIG_MAP_VIEWS, wanted(name, value), force=True, namespace=NAMESPACE
        )

    async def remove(self, name: str) -> None:
        """The bystander deletes one."""
        view = await self.bystander.get(CONFIG_MAP_VIEWS, name, namespace=NAMESPACE)
        await self.bystander.delete(
            CONFIG_MAP_VIEWS, name, uid=view.metadata.uid, namespace=NAMESPACE
        )

    async def agrees(self) -> bool:
        """Whether the cache is what the server has, to the revision."""
        there = (await self.bystander.list_page(CONFIG_MAP_VIEWS, namespace=NAMESPACE)).items
        return sorted(self.cache, key=_name) == sorted(there, key=_name)


def _name(view: ConfigMapView) -> str:
    return view.metadata.name


@asynccontextmanager
async def _following(city: World) -> AsyncGenerator[None]:
    async with running(city.cache.run()):
        yield
    await eventually(lambda: city.server.open_watches == 0)


@pytest.fixture
async def city() -> AsyncIterator[World]:
    made = World()
    await made.open()
    yield made
    await made.close()


async def test_a_cache_reconnects_to_a_killed_server(city: World) -> None:
    await city.write("a", "1")
    await city.write("b", "1")
    async with _following(city):
        await city.cache.wait_synced()
        for round_ in range(3):
            await city.kill()
            error = await failure(
                city.kube.create(CONFIG_MAP_VIEWS, wanted("mine"), namespace=NAMESPACE)
            )
            assert type(error) is Unavailable
            assert "nothing listens there" in error.message
            await eventually(lambda: "nothing listens there" in city.cache.problem)
            await city.server.start()  # others have their ways in
            await city.write("a", f"changed in round {round_}")
            await city.write(f"c{round_}", "1")
            await city.remove("b")
            await city.write("b", f"made anew in round {round_}")
            assert not await city.agrees()
            await city.open()
            await eventually(city.agrees)
            await eventually(lambda: city.cache.problem == "")
        assert await city.cache.verify_current(within=5.0)


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_a_body_cut_in_the_middle_is_requested_again(city: World, verb: str) -> None:
    for number in range(50):
        await city.write(f"m{number}", "1")
    fault = city.inject(Cut("body"), verb)
    async with _following(city):
        await city.cache.wait_synced()
        await eventually(lambda: city.server.open_watches == 1)
        await city.write("m7", "2")
        await city.remove("m8")
        await eventually(city.agrees)
        assert len(city.cache) == 49
        assert fault.hit_count == 1


async def test_a_write_whose_response_is_cut_over_http_is_done(city: World) -> None:
    for at, name in (("after", "a"), ("body", "b")):
        fault = city.inject(Cut("after" if at == "after" else "body"), "create")
        error = await failure(city.kube.create(CONFIG_MAP_VIEWS, wanted(name), namespace=NAMESPACE))
        assert type(error) is Unavailable
        assert fault.hit_count == 1
    made = [each.name for each in city.server.journal.revisions if each.user == CLIENT]
    assert made == ["a", "b"]


@pytest.mark.parametrize("seed", range(2))
async def test_a_cache_equals_the_server_after_a_storm_over_http(city: World, seed: int) -> None:
    drawn = random.Random(seed)
    struck: list[ActiveFault] = []
    names = [f"m{number}" for number in range(20)]
    async with _following(city):
        for _ in range(6):
            for does, verbs in (
                (Cut("before"), ()),
                (Cut("after"), ("list",)),
                (Cut("body"), ()),
                (DropWatch(drawn.randrange(3), clean=drawn.random() < 0.5), ()),
                (SlowBody(700, 0.001), ()),
                (RefuseRequest(drawn.choice([401, 429, 500, 503])), ()),
            ):
                struck.append(city.inject(does, *verbs))
            for _ in range(15):
                name = drawn.choice(names)
                there = {view.metadata.name for view in await _page(city)}
                if name in there and drawn.random() < 0.4:
                    await city.remove(name)
                else:
                    await city.write(name, str(drawn.random()))
                await asyncio.sleep(0)
            await _jolt(city, drawn)

        async def used_up() -> bool:
            city.server.faults.drop_watches(user=CLIENT)
            await city.cache.verify_current(within=1.0)
            return all(active.hit_count == 1 for active in struck)

        await eventually(used_up)
        await eventually(city.agrees)
        assert await city.cache.verify_current(within=10.0)


async def _page(city: World) -> tuple[ConfigMapView, ...]:
    return (await city.bystander.list_page(CONFIG_MAP_VIEWS, namespace=NAMESPACE)).items


async def _jolt(city: World, drawn: random.Random) -> None:
    match drawn.randrange(4):
        case 0:
            await city.kill()
            await city.open()
        case 1:
            await city.server.restart()
        case 2:
            await city.server.compact()
        case _:
            city.server.faults.drop_watches(clean=drawn.random() < 0.5)
