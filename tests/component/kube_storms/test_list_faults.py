"""A list that meets one fault: the cache asks again, and takes no half of it for the whole."""

import pytest

from libs.testing.apiserver.faults import Cut, Delay, SlowBody, Stale
from tests.component.kube_storms.world import CONFIG_MAP_VIEWS, World, following_cache, run_story


@pytest.mark.parametrize("at", ["before", "after", "body"])
def test_a_truncated_list_is_discarded_and_requested_again(at: str) -> None:
    async def story(v: World) -> None:
        await v.write(a="1", b="1")
        cut = {"before": Cut("before"), "after": Cut("after"), "body": Cut("body")}[at]
        fault = v.inject(cut, "list")
        async with following_cache(v):
            await v.settle()
            assert v.cached_objects() == {}
            assert not v.cache.is_synced
            assert "cut" in v.cache.problem
            await v.clock.sleep(1.0)
            assert v.cached_objects() == await v.server_objects() == {"a": "1", "b": "1"}
            assert v.cache.problem == ""
            assert fault.hit_count == 1
            assert v.asked["list"] == 2

    run_story(story)


def test_a_late_list_is_as_old_as_its_request() -> None:
    async def story(v: World) -> None:
        fault = v.inject(Delay(8.0), "list")
        async with following_cache(v):
            await v.cache.wait_synced()
            assert v.clock.monotonic() == 8.0
            assert v.cache.age == 8.0
            assert fault.hit_count == v.asked["list"] == 1

    run_story(story)


def test_a_slow_list_is_completed_within_its_timeout_or_requested_again() -> None:
    async def story(v: World) -> None:
        await v.write(a="1", b="1")
        size = len(await v.kube.request("GET", "/api/v1/namespaces/default/configmaps"))
        v.asked.clear()
        endless = v.inject(SlowBody(1, 1.0), "list")
        async with following_cache(v):
            await v.clock.sleep(30.0)
            assert v.cached_objects() == {}
            v.inject(SlowBody(size // 4 + 1, 2.0), "list")
            before = v.clock.monotonic()
            await v.cache.wait_synced()
            assert 8.0 <= v.clock.monotonic() - before <= 9.0
            assert v.cached_objects() == await v.server_objects() == {"a": "1", "b": "1"}
            assert endless.hit_count == 1
            assert v.asked["list"] == 2

    run_story(story)


def test_a_cache_never_requests_a_list_from_the_server_cache() -> None:
    async def story(v: World) -> None:
        await v.write(a="1")
        await v.write(a="2")
        fault = v.inject(Stale(1), times=None)
        async with following_cache(v):
            await v.cache.wait_synced()
            assert v.cached_objects() == {"a": "2"}
            assert fault.hit_count == 0
            assert (await v.kube.list_page(CONFIG_MAP_VIEWS, resource_version="0")).items[
                0
            ].data == {"value": "1"}
            assert fault.hit_count == 1

    run_story(story)


def test_a_cache_recovers_from_an_outage() -> None:
    async def story(v: World) -> None:
        await v.write(a="1")
        async with following_cache(v):
            await v.cache.wait_synced()
            await v.settle()
            await v.server.stop()
            await v.clock.sleep(20.0)
            assert v.cached_objects() == {"a": "1"}
            assert "cut" in v.cache.problem
            assert 19.0 <= v.cache.age <= 20.1
            await v.server.start()
            await v.write(a="2", b="1")
            await v.clock.sleep(30.0)
            assert v.cached_objects() == await v.server_objects() == {"a": "2", "b": "1"}
            assert v.cache.problem == ""

    run_story(story)


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_stopping_server_cuts_delayed_requests(verb: str) -> None:
    async def story(v: World) -> None:
        fault = v.inject(Delay(5.0), verb)
        async with following_cache(v):
            await v.clock.sleep(1.0)
            await v.server.stop()
            await v.clock.sleep(6.0)
            assert fault.hit_count == 1
            assert v.cache.is_synced == (verb == "watch")
            assert "cut" in v.cache.problem
            assert v.server.open_watches == 0
            await v.server.start()
            await v.clock.sleep(30.0)
            assert v.cached_objects() == await v.server_objects() == {}
            assert v.cache.problem == ""

    run_story(story)
