"""An object that cannot be read is named, and the others are followed as before."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from libs.kube.cache import Cache
from libs.kube.resources import Resource
from tests.unit.kube.world import (
    CONFIG_MAP_VIEWS,
    NAMESPACE,
    ConfigMapView,
    World,
    in_virtual_time,
)


class StrictView(ConfigMapView, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        if self.data["value"] == "odd":
            raise ValueError("the value is odd")


STRICT: Resource[StrictView] = Resource(
    plural=CONFIG_MAP_VIEWS.plural, kind=CONFIG_MAP_VIEWS.kind, view=StrictView
)


def contents(cache: Cache[StrictView]) -> dict[str, str]:
    return {view.metadata.name: view.data["value"] for view in cache}


@asynccontextmanager
async def strict_cache(world: World) -> AsyncGenerator[Cache[StrictView]]:
    env = world.sim.env("strict")
    cache = Cache(world.kube, STRICT, env=env, namespace=NAMESPACE)
    task = asyncio.create_task(cache.run())
    try:
        await cache.wait_synced()
        yield cache
    finally:
        task.cancel()
        await asyncio.wait({task})


@in_virtual_time()
async def test_a_list_with_an_unreadable_object_has_the_others(world: World) -> None:
    await world.write(a="1", b="odd", c="3")
    async with strict_cache(world) as cache:
        assert contents(cache) == {"a": "1", "c": "3"}
        assert list(cache.unreadable) == ["default/b"]
        assert "the value is odd" in cache.unreadable["default/b"]
        assert cache.problem == ""
        assert await cache.verify_current(within=5.0)
        assert list(cache.unreadable) == ["default/b"]


@in_virtual_time()
async def test_an_object_that_becomes_unreadable_stays_as_it_was(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.write(a="1", b="2")
    async with strict_cache(world) as cache:
        await world.write(a="odd", c="odd", b="3")
        await world.settle()
        assert contents(cache) == {"a": "1", "b": "3"}
        assert sorted(cache.unreadable) == ["default/a", "default/c"]
        assert caplog.text.count("cannot read ConfigMap default/a") == 1
        await world.remove("c")
        await world.settle()
        assert list(cache.unreadable) == ["default/a"]
        assert world.requests == {"list": 1, "watch": 1}
        world.server.faults.drop_watches(kind="ConfigMap")
        assert await cache.verify_current(within=5.0)
        assert contents(cache) == {"a": "1", "b": "3"}
        await world.write(a="2")
        await world.clock.sleep(5)
        assert contents(cache) == {"a": "2", "b": "3"}
        assert cache.unreadable == {}
        await world.write(a="odd")
        await world.remove("a")
        await world.clock.sleep(5)
        assert contents(cache) == {"b": "3"}
        assert cache.unreadable == {}
