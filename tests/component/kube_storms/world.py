"""A small place to try one fault at a time: a server, a bystander, and us with a cache."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.kube.resources import CONFIG_MAPS, Resource
from libs.kube.transport import Request, Response, Transport
from libs.kube.views import Object
from libs.runtime.fatal import Fatal
from libs.runtime.tasks import Tasks
from libs.testing.apiserver.faults import ActiveFault, Fault, FaultEffect
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim, run

CLIENT = "us"
NAMESPACE = "default"


class ConfigMapView(Object, frozen=True, kw_only=True):
    """A config map with what is in it."""

    data: dict[str, str] = {}


CONFIG_MAP_VIEWS: Resource[ConfigMapView] = Resource(
    plural=CONFIG_MAPS.plural, kind=CONFIG_MAPS.kind, view=ConfigMapView
)


class CountingTransport:
    """A transport that counts what goes through it, by verb."""

    def __init__(self, wire: Transport) -> None:
        self._wire = wire
        self.asked: Counter[str] = Counter()

    def __str__(self) -> str:
        return str(self._wire)

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        """Count it, and let it through."""
        self.asked[_verb(request)] += 1
        async with self._wire.open(request) as answer:
            yield answer


def _verb(request: Request) -> str:
    if request.method != "GET":
        return request.method
    if "watch" in request.query:
        return "watch"
    return "list" if request.path.endswith("configmaps") else "get"


class World:
    """Its server has config maps only."""

    def __init__(self, sim: Sim, *, remembers: int = 1_000) -> None:
        self.clock = sim.clock
        self.server = ApiServer(
            clock=sim.clock, ids=sim.ids, random=sim.random_for("server"), history_changes=remembers
        )
        self._wire = CountingTransport(self.server.transport(user=CLIENT))
        self.asked = self._wire.asked
        self.kube = Kube(self._wire, manager=CLIENT, clock=sim.clock)
        self.cache = Cache(
            self.kube,
            CONFIG_MAP_VIEWS,
            env=sim.env("cache"),
            namespace=NAMESPACE,
        )
        self._bystander = Kube(
            self.server.transport(user="bystander"), manager="bystander", clock=sim.clock
        )

    def inject(self, does: FaultEffect, *verbs: str, times: int | None = 1) -> ActiveFault:
        """From now on it befalls us."""
        return self.server.faults.add(Fault(effect=does, verbs=verbs, user=CLIENT, times=times))

    async def write(self, **maps: str) -> None:
        """The bystander makes maps or changes them: name and value."""
        for name, value in maps.items():
            path = CONFIG_MAP_VIEWS.path(namespace=NAMESPACE, name=name)
            wanted = {"apiVersion": "v1", "kind": "ConfigMap"}
            wanted |= {"metadata": {"name": name}, "data": {"value": value}}
            await self._bystander.request(
                "PATCH",
                path,
                query={"fieldManager": "bystander", "force": "true"},
                body=wanted,
                content_type="application/apply-patch+yaml",
            )

    async def remove(self, name: str) -> None:
        """The bystander deletes one."""
        await self._bystander.request(
            "DELETE", CONFIG_MAP_VIEWS.path(namespace=NAMESPACE, name=name)
        )

    async def server_objects(self) -> dict[str, str]:
        """What the server has."""
        page = await self._bystander.list_page(CONFIG_MAP_VIEWS, namespace=NAMESPACE)
        return {view.metadata.name: view.data["value"] for view in page.items}

    def cached_objects(self) -> dict[str, str]:
        """What our cache has."""
        return {view.metadata.name: view.data["value"] for view in self.cache}

    def committed(self, *, by: str = CLIENT) -> list[tuple[str, str]]:
        """What that user has written: verb and name."""
        return [
            (str(each.verb), each.name)
            for each in self.server.journal.revisions
            if each.user == by and each.code < 300
        ]

    async def settle(self) -> None:
        """What was sent arrives."""
        await self.clock.sleep(0.001)


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """While it runs, and until it is stopped; where it fails, so does whoever waits here."""
    failed: list[Fatal] = []
    owner = asyncio.current_task()
    assert owner is not None

    def fail(fatal: Fatal) -> None:
        failed.append(fatal)
        owner.cancel()

    tasks = Tasks("test", failed=fail)
    tasks.forever("beside", work)
    try:
        yield
    except asyncio.CancelledError:
        if not failed:
            raise
        owner.uncancel()
    finally:
        await tasks.close()
    assert failed == []


@asynccontextmanager
async def following_cache(village: World) -> AsyncGenerator[None]:
    """While our cache follows; it is not waited for."""
    async with running(village.cache.run()):
        yield
    assert village.server.open_watches == 0


def run_story(story: Callable[[World], Awaitable[None]], *, remembers: int = 1_000) -> None:
    """Play it, in virtual time."""

    async def main(sim: Sim) -> None:
        await story(World(sim, remembers=remembers))

    run(main, seed=1)


async def failure(awaitable: Awaitable[Any]) -> KubeError:
    """What it ended in."""
    try:
        await awaitable
    except KubeError as error:
        return error
    raise AssertionError("it went well")


def wanted(name: str, value: str = "1") -> dict[str, Any]:
    """A map of ours."""
    return {"metadata": {"name": name}, "data": {"value": value}}
