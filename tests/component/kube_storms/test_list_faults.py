"""Lists under one fault each, as a cache sees them."""

import pytest

from libs.testing.apiserver.faults import Cut, Delay, SlowBody, Stale
from tests.component.kube_storms.world import CONFIG_MAP_VIEWS, World, following_cache, run_story


@pytest.mark.parametrize("at", ["before", "after", "body"])
def test_a_truncated_list_is_discarded_and_requested_again(at: str) -> None:
    async def story(world: World) -> None:
        await world.write(a="1", b="1")
        cut = {"before": Cut("before"), "after": Cut("after"), "body": Cut("body")}[at]
        fault = world.inject(cut, "list")
        async with following_cache(world):
            await world.settle()
            assert world.cached_objects() == {}
            assert not world.cache.is_synced
            assert "cut" in world.cache.problem
            await world.clock.sleep(1.0)
            assert world.cached_objects() == await world.server_objects() == {"a": "1", "b": "1"}
            assert world.cache.problem == ""
            assert fault.hit_count == 1
            assert world.requests["list"] == 2

    run_story(story)


def test_a_late_list_is_as_old_as_its_request() -> None:
    async def story(world: World) -> None:
        fault = world.inject(Delay(8.0), "list")
        async with following_cache(world):
            await world.cache.wait_synced()
            assert world.clock.monotonic() == 8.0
            assert world.cache.age == 8.0
            assert fault.hit_count == world.requests["list"] == 1

    run_story(story)


def test_a_slow_list_is_completed_within_its_timeout_or_requested_again() -> None:
    async def story(world: World) -> None:
        await world.write(a="1", b="1")
        size = len(await world.kube.request("GET", "/api/v1/namespaces/default/configmaps"))
        world.requests.clear()
        endless = world.inject(SlowBody(1, 1.0), "list")
        async with following_cache(world):
            await world.clock.sleep(30.0)
            assert world.cached_objects() == {}
            world.inject(SlowBody(size // 4 + 1, 2.0), "list")
            before = world.clock.monotonic()
            await world.cache.wait_synced()
            assert 8.0 <= world.clock.monotonic() - before <= 9.0
            assert world.cached_objects() == await world.server_objects() == {"a": "1", "b": "1"}
            assert endless.hit_count == 1
            assert world.requests["list"] == 2

    run_story(story)


def test_a_cache_never_requests_a_list_from_the_server_cache() -> None:
    async def story(world: World) -> None:
        await world.write(a="1")
        await world.write(a="2")
        fault = world.inject(Stale(1), times=None)
        async with following_cache(world):
            await world.cache.wait_synced()
            assert world.cached_objects() == {"a": "2"}
            assert fault.hit_count == 0
            assert (await world.kube.list_page(CONFIG_MAP_VIEWS, resource_version="0")).items[
                0
            ].data == {"value": "1"}
            assert fault.hit_count == 1

    run_story(story)


def test_a_cache_recovers_from_an_outage() -> None:
    async def story(world: World) -> None:
        await world.write(a="1")
        async with following_cache(world):
            await world.cache.wait_synced()
            await world.settle()
            await world.server.stop()
            await world.clock.sleep(20.0)
            assert world.cached_objects() == {"a": "1"}
            assert "cut" in world.cache.problem
            assert 19.0 <= world.cache.age <= 20.1
            await world.server.start()
            await world.write(a="2", b="1")
            await world.clock.sleep(30.0)
            assert world.cached_objects() == await world.server_objects() == {"a": "2", "b": "1"}
            assert world.cache.problem == ""

    run_story(story)


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_stopping_server_cuts_delayed_requests(verb: str) -> None:
    async def story(world: World) -> None:
        fault = world.inject(Delay(5.0), verb)
        async with following_cache(world):
            await world.clock.sleep(1.0)
            await world.server.stop()
            await world.clock.sleep(6.0)
            assert fault.hit_count == 1
            assert world.cache.is_synced == (verb == "watch")
            assert "cut" in world.cache.problem
            assert world.server.open_watches == 0
            await world.server.start()
            await world.clock.sleep(30.0)
            assert world.cached_objects() == await world.server_objects() == {}
            assert world.cache.problem == ""

    run_story(story)
