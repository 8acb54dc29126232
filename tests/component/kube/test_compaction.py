"""Compaction and restart of the server: the errors, and the recovery of a cache."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest

from libs.kube.cache import Cache
from libs.kube.errors import Gone
from libs.kube.resources import CONFIG_MAPS
from libs.kube.views import Object
from libs.testing.simulation import make_env
from tests.builders.objects import config_map
from tests.component.kube.raw_requests import patch, raw_watch
from tests.component.kube.sandbox import Kube, Sandbox
from tests.support import eventually


async def test_revisions_before_a_compaction_are_gone(sandbox: Sandbox, kube: Kube) -> None:
    """Try a watch, the next page of a list, and an exact list."""
    path = CONFIG_MAPS.path(namespace=sandbox.namespace)
    for name in ("a", "b", "c"):
        await kube.create(CONFIG_MAPS, config_map(name))
    page = await kube.list_page(CONFIG_MAPS, limit=1)
    old = page.resource_version
    for n in range(3):
        await patch(kube, CONFIG_MAPS, "a", {"data": {"n": str(n)}})

    await sandbox.compact()

    async with raw_watch(kube, path, resourceVersion=old) as watched:
        event = await watched.next()
        assert await watched.rest() == []
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith(f"too old resource version: {old} (")

    with pytest.raises(Gone) as gone:
        await kube.list_page(CONFIG_MAPS, limit=1, continue_token=page.continue_token)
    assert (gone.value.code, gone.value.reason) == (410, "Expired")
    with pytest.raises(Gone) as gone:
        await kube.request("GET", path, query={"resourceVersion": old, "limit": "9"})
    assert (gone.value.code, gone.value.reason) == (410, "Expired")

    current = await kube.list_page(CONFIG_MAPS, fields="metadata.name!=none")
    assert {"a", "b", "c"} <= {item.metadata.name for item in current.items}
    async with raw_watch(kube, path, resourceVersion=current.resource_version) as watched:
        created = await kube.create(CONFIG_MAPS, config_map("d"))
        assert await watched.take(1) == [("ADDED", "d", created.metadata.resource_version)]


@asynccontextmanager
async def following(sandbox: Sandbox, kube: Kube) -> AsyncGenerator[Cache[Object]]:
    """Run a cache of the sandbox's ConfigMaps, synchronised."""
    cache = Cache(kube, CONFIG_MAPS, env=make_env(), namespace=sandbox.namespace)
    task = asyncio.create_task(cache.run())
    try:
        await cache.wait_synced()
        yield cache
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def same(sandbox: Sandbox, cache: Cache[Object]) -> bool:
    page = await sandbox.kube(manager="other").list_page(CONFIG_MAPS)
    return {item.metadata.key: item for item in page.items} == {
        item.metadata.key: item for item in cache
    }


@pytest.mark.parametrize("interruption", ["restart", "compact"])
async def test_a_cache_recovers_from_a_restart_and_a_compaction(
    sandbox: Sandbox, kube: Kube, interruption: str
) -> None:
    """Write before and after the interruption."""
    async with following(sandbox, kube) as cache:
        changed = await kube.create(CONFIG_MAPS, config_map("a"))
        deleted = await kube.create(CONFIG_MAPS, config_map("b"))
        await eventually(lambda: same(sandbox, cache))

        await getattr(sandbox, interruption)()
        await patch(kube, CONFIG_MAPS, "a", {"data": {"new": "1"}})
        await kube.delete(CONFIG_MAPS, "b", uid=deleted.metadata.uid)
        await kube.create(CONFIG_MAPS, config_map("c"))

        await eventually(lambda: same(sandbox, cache))
        cached = cache.get(f"{sandbox.namespace}/a")
        assert cached is not None
        assert int(cached.metadata.resource_version) > int(changed.metadata.resource_version)
        assert cache.get(f"{sandbox.namespace}/b") is None
        assert await cache.verify_current(within=10.0)


async def test_a_cache_has_our_own_write_before_its_watch_event(
    sandbox: Sandbox, kube: Kube
) -> None:
    async with following(sandbox, kube) as cache:
        created = await kube.create(CONFIG_MAPS, config_map("a"))
        cache.record_write(created)
        assert cache.get(f"{sandbox.namespace}/a") == created
        await eventually(lambda: same(sandbox, cache))


async def test_a_cache_equals_the_server_after_many_concurrent_writes(
    sandbox: Sandbox, kube: Kube
) -> None:
    async with following(sandbox, kube) as cache:

        async def churn(n: int) -> None:
            name = f"c{n % 5}"
            with suppress(Exception):
                await kube.create(CONFIG_MAPS, config_map(name))
            with suppress(Exception):
                change = {"data": {"n": str(n)}}
                await patch(kube, CONFIG_MAPS, name, change)
            if n % 3 == 0:
                path = CONFIG_MAPS.path(namespace=sandbox.namespace, name=name)
                with suppress(Exception):
                    await kube.request("DELETE", path)

        await asyncio.gather(*(churn(n) for n in range(60)))
        await eventually(lambda: same(sandbox, cache))
