"""A world for one fault at a time: a server, another writer, and a client with a cache."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.kube.requests import Request, Response, Transport
from libs.kube.resources import CONFIG_MAPS, Resource
from libs.kube.views import Object
from libs.runtime.fatal import Fatal
from libs.runtime.tasks import Tasks
from libs.testing.apiserver.faults import ActiveFault, Fault, FaultEffect
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim, run

CLIENT = "us"
NAMESPACE = "default"


class ConfigMapView(Object, frozen=True, kw_only=True):
    data: dict[str, str] = {}


CONFIG_MAP_VIEWS: Resource[ConfigMapView] = Resource(
    plural=CONFIG_MAPS.plural, kind=CONFIG_MAPS.kind, view=ConfigMapView
)


class CountingTransport:
    """Counts requests by verb."""

    def __init__(self, wire: Transport) -> None:
        self._wire = wire
        self.requests: Counter[str] = Counter()

    def __str__(self) -> str:
        return str(self._wire)

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        self.requests[_verb(request)] += 1
        async with self._wire.open(request) as answer:
            yield answer


def _verb(request: Request) -> str:
    if request.method != "GET":
        return request.method
    if "watch" in request.query:
        return "watch"
    return "list" if request.path.endswith("configmaps") else "get"


class World:
    """A server with config maps only."""

    def __init__(self, sim: Sim, *, history_changes: int = 1_000) -> None:
        self.clock = sim.clock
        self.server = ApiServer(
            clock=sim.clock,
            ids=sim.ids,
            random=sim.random_for("server"),
            history_changes=history_changes,
        )
        self._wire = CountingTransport(self.server.transport(user=CLIENT))
        self.requests = self._wire.requests
        self.kube = Kube(self._wire, manager=CLIENT, clock=sim.clock)
        self.cache = Cache(
            self.kube,
            CONFIG_MAP_VIEWS,
            env=sim.env("cache"),
            namespace=NAMESPACE,
        )
        self._other = Kube(
            self.server.transport(user="bystander"), manager="bystander", clock=sim.clock
        )

    def inject(self, does: FaultEffect, *verbs: str, times: int | None = 1) -> ActiveFault:
        """Add a fault for this client."""
        return self.server.faults.add(Fault(effect=does, verbs=verbs, user=CLIENT, times=times))

    async def write(self, **maps: str) -> None:
        """Apply config maps as the other client: name to value."""
        for name, value in maps.items():
            path = CONFIG_MAP_VIEWS.path(namespace=NAMESPACE, name=name)
            manifest = {"apiVersion": "v1", "kind": "ConfigMap"}
            manifest |= {"metadata": {"name": name}, "data": {"value": value}}
            await self._other.request(
                "PATCH",
                path,
                query={"fieldManager": "bystander", "force": "true"},
                body=manifest,
                content_type="application/apply-patch+yaml",
            )

    async def remove(self, name: str) -> None:
        """Delete a config map as the other client."""
        await self._other.request("DELETE", CONFIG_MAP_VIEWS.path(namespace=NAMESPACE, name=name))

    async def server_objects(self) -> dict[str, str]:
        page = await self._other.list_page(CONFIG_MAP_VIEWS, namespace=NAMESPACE)
        return {view.metadata.name: view.data["value"] for view in page.items}

    def cached_objects(self) -> dict[str, str]:
        return {view.metadata.name: view.data["value"] for view in self.cache}

    def committed(self, *, by: str = CLIENT) -> list[tuple[str, str]]:
        """Return verb and name of the user's successful writes."""
        return [
            (str(each.verb), each.name)
            for each in self.server.journal.revisions
            if each.user == by and each.code < 300
        ]

    async def settle(self) -> None:
        """Let everything sent arrive."""
        await self.clock.sleep(0.001)


@asynccontextmanager
async def running(coroutine: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Run the coroutine beside the body; its error_of fails the body."""
    failed: list[Fatal] = []
    owner = asyncio.current_task()
    assert owner is not None

    def fail(fatal: Fatal) -> None:
        failed.append(fatal)
        owner.cancel()

    tasks = Tasks("test", failed=fail)
    tasks.forever("beside", coroutine)
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
async def following_cache(world: World) -> AsyncGenerator[None]:
    """Run the cache, without waiting for its first list."""
    async with running(world.cache.run()):
        yield
    assert world.server.open_watches == 0


def run_story(story: Callable[[World], Awaitable[None]], *, history_changes: int = 1_000) -> None:
    """Run a story in virtual time."""

    async def main(sim: Sim) -> None:
        await story(World(sim, history_changes=history_changes))

    run(main, seed=1)


async def error_of(awaitable: Awaitable[Any]) -> KubeError:
    """Return the error that the awaitable raises."""
    try:
        await awaitable
    except KubeError as error:
        return error
    raise AssertionError("no error was raised")


def manifest(name: str, value: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"value": value}}
