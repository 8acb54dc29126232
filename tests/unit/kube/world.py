"""A world for tests of caches: a simulated API server, a client with a cache, and another client.

Requests of the client are recorded, and may be answered by raw responses instead of the server's.
"""

import asyncio
import functools
import inspect
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.kube.resources import CONFIG_MAPS, custom_resource
from libs.kube.views import Object
from libs.policy.kinds import ROLLOUT
from libs.runtime.fatal import Fatal
from libs.runtime.tasks import Tasks
from libs.testing.apiserver.faults import ActiveFault, Fault, FaultEffect
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim, run
from tests.unit.kube.raw_http import ScriptedTransport, verb_of

CLIENT = "us"
NAMESPACE = "default"
DEAD = 1e6
"""A pause in seconds that outlasts every test."""


class ConfigMapView(Object, frozen=True, kw_only=True):
    data: dict[str, str] = {}


CONFIG_MAP_VIEWS = CONFIG_MAPS.viewed_as(ConfigMapView)
ROLLOUTS = custom_resource(ROLLOUT, Object)
"""A kind whose definition a server may lack."""


class SimWorld:
    """A world of a test in virtual time."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.clock = sim.clock

    async def start(self) -> None: ...

    async def close(self) -> None: ...


class World(SimWorld):
    """A server with config maps only, and a cache that `following_cache` runs."""

    def __init__(self, sim: Sim, *, history_changes: int = 1_000, **selection: str) -> None:
        super().__init__(sim)
        self.history_changes = history_changes
        self.wire = ScriptedTransport()
        self.start_server()
        self.kube = Kube(self.wire, manager=CLIENT, clock=sim.clock)
        self.cache = Cache(
            self.kube,
            CONFIG_MAP_VIEWS,
            env=sim.env("cache"),
            indexes={"value": lambda view: view.data["value"].split()},
            **{"namespace": NAMESPACE, **selection},
        )
        self.changes: list[str] = []
        self.cache.on_change(
            lambda old, new: self.changes.append(f"{_value(old)} -> {_value(new)}")
        )

    def start_server(self) -> None:
        """Replace the server by an empty one, with revisions from the start."""
        self.server = ApiServer(
            clock=self.clock,
            ids=self.sim.ids,
            random=self.sim.random_for("server"),
            history_changes=self.history_changes,
        )
        self.wire.server = self.server.transport(user=CLIENT)
        self.other = Kube(
            self.server.transport(user="bystander"), manager="bystander", clock=self.clock
        )

    @property
    def requests(self) -> Counter[str]:
        """The number of the client's requests by verb."""
        return Counter(map(verb_of, self.wire.requests))

    def inject(self, effect: FaultEffect, *verbs: str, times: int | None = 1) -> ActiveFault:
        """Add a fault for this client."""
        return self.server.faults.add(Fault(effect=effect, verbs=verbs, user=CLIENT, times=times))

    async def write(self, **values: str) -> None:
        """Apply config maps as the other client: name to value."""
        for name, value in values.items():
            await self.apply(name, value)

    async def apply(self, name: str, value: str) -> ConfigMapView:
        wanted = manifest(name, value)
        return await self.other.apply(CONFIG_MAP_VIEWS, wanted, force=True, namespace=NAMESPACE)

    async def remove(self, name: str) -> None:
        """Delete a config map as the other client."""
        await self.other.request("DELETE", CONFIG_MAP_VIEWS.path(namespace=NAMESPACE, name=name))

    async def server_objects(self) -> dict[str, str]:
        page = await self.other.list_page(CONFIG_MAP_VIEWS, namespace=NAMESPACE)
        return {view.metadata.name: view.data["value"] for view in page.items}

    def cached_objects(self) -> dict[str, str]:
        return {view.metadata.name: view.data["value"] for view in self.cache}

    async def assert_current(self, expected: dict[str, str]) -> None:
        assert self.cached_objects() == await self.server_objects() == expected

    def committed(self) -> list[tuple[str, str]]:
        """Return verb and name of the client's successful writes."""
        return [
            (str(entry.verb), entry.name)
            for entry in self.server.journal.revisions
            if entry.user == CLIENT and entry.code < 300
        ]

    async def settle(self) -> None:
        """Let everything sent arrive."""
        await self.clock.sleep(0.001)


def _value(view: ConfigMapView | None) -> str:
    return f"{view.metadata.name}={view.data['value']}" if view else "none"


def manifest(name: str, value: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"value": value}}


def in_virtual_time(
    world_type: Callable[..., SimWorld] = World, **options: Any
) -> Callable[[Callable[..., Awaitable[None]]], Any]:
    """Run an async test in virtual time; its first parameter is a new world."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Any:
        @functools.wraps(test)
        def run_test(**arguments: Any) -> None:
            async def main(sim: Sim) -> None:
                world = world_type(sim, **options)
                await world.start()
                await test(world, **arguments)
                await world.close()

            run(main, seed=1)

        signature = inspect.signature(test)
        parameters = list(signature.parameters.values())[1:]
        run_test.__dict__["__signature__"] = signature.replace(parameters=parameters)
        return run_test

    return decorate


@asynccontextmanager
async def running(coroutine: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Run the coroutine beside the body; its error fails the body."""
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
async def following_cache(world: World, *, synced: bool = True) -> AsyncGenerator[None]:
    """Run the cache, and wait for its first list."""
    async with running(world.cache.run()):
        if synced:
            await world.cache.wait_synced()
        yield
    assert world.server.open_watches == world.wire.open_now == 0


async def error_of(awaitable: Awaitable[Any]) -> KubeError:
    """Return the error that the awaitable raises."""
    try:
        await awaitable
    except KubeError as error:
        return error
    raise AssertionError("no error was raised")
