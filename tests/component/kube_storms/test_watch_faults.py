"""Watches under one fault each: how the cache recovers, and at how many requests."""

import pytest

from libs.kube.errors import Unavailable
from libs.testing.apiserver import watches
from libs.testing.apiserver.faults import Cut, DropWatch, Hang, RefuseRequest, Restart, SlowBody
from tests.component.kube_storms.world import (
    CONFIG_MAP_VIEWS,
    NAMESPACE,
    World,
    error_of,
    following_cache,
    run_story,
)

BACK_OFF = 1.0
"""Upper limit of the first back-off in seconds."""


@pytest.mark.parametrize("clean", [True, False])
def test_a_dropped_watch_resumes_without_a_list(*, clean: bool) -> None:
    async def story(world: World) -> None:
        fault = world.inject(DropWatch(after=2, clean=clean), "watch")
        async with following_cache(world):
            await world.cache.wait_synced()
            await world.settle()
            await world.write(a="1", b="1", c="1", d="1")
            await world.settle()
            assert world.cached_objects() == {"a": "1", "b": "1"}
            await world.clock.sleep(BACK_OFF)
            assert (
                world.cached_objects()
                == await world.server_objects()
                == {"a": "1", "b": "1", "c": "1", "d": "1"}
            )
            assert fault.hit_count == 1
            assert (world.requests["list"], world.requests["watch"]) == (1, 2)

    run_story(story)


@pytest.mark.parametrize("at", ["before", "after"])
def test_a_watch_cut_while_opening_is_opened_again(at: str) -> None:
    async def story(world: World) -> None:
        fault = world.inject(Cut("before" if at == "before" else "after"), "watch")
        async with following_cache(world):
            await world.cache.wait_synced()
            await world.write(a="1")
            await world.clock.sleep(BACK_OFF)
            assert world.cached_objects() == await world.server_objects() == {"a": "1"}
            assert fault.hit_count == 1
            assert (world.requests["list"], world.requests["watch"]) == (1, 2)
            assert world.server.open_watches == 1

    run_story(story)


def test_a_watch_that_hangs_while_opening_times_out() -> None:
    async def story(world: World) -> None:
        fault = world.inject(Hang(), "watch")
        async with following_cache(world):
            await world.cache.wait_synced()
            await world.write(a="1")
            await world.clock.sleep(9.9)
            assert world.requests["watch"] == 1
            await world.clock.sleep(0.1 + BACK_OFF)
            assert world.cached_objects() == await world.server_objects() == {"a": "1"}
            assert fault.hit_count == 1
            assert (world.requests["list"], world.requests["watch"]) == (1, 2)

    run_story(story)


def test_a_late_event_proves_nothing() -> None:
    async def story(world: World) -> None:
        world.inject(RefuseRequest(503), "watch", times=None)
        ages: list[float] = []
        world.cache.on_change(lambda _old, _new: ages.append(world.cache.age))
        async with following_cache(world):
            await world.cache.wait_synced()
            await world.write(a="1", b="1", c="1")
            await world.clock.sleep(20.0)
            world.server.faults.clear()
            fault = world.inject(DropWatch(after=1), "watch")
            await world.clock.sleep(60.0)
            assert (
                world.cached_objects()
                == await world.server_objects()
                == {"a": "1", "b": "1", "c": "1"}
            )
            assert fault.hit_count == 1
            assert ages[0] >= 20.0  # two others were as old, and not there

    run_story(story)


def test_a_bookmark_keeps_its_order_among_slow_events() -> None:
    async def story(world: World) -> None:
        fault = world.inject(SlowBody(50, 1.0), "watch")
        async with following_cache(world):
            await world.cache.wait_synced()
            await world.clock.sleep(57.0)
            await world.write(a="1")
            await world.clock.sleep(4.0)  # it is under way, and a bookmark waits behind it
            await world.write(b="1")
            await world.clock.sleep(60.0)
            assert world.cached_objects() == await world.server_objects() == {"a": "1", "b": "1"}
            assert world.cache.problem == ""
            assert fault.hit_count == 1
            assert (world.requests["list"], world.requests["watch"]) == (1, 1)

    run_story(story)


@pytest.mark.parametrize("code", [401, 403, 429, 500, 503, 504])
def test_a_refused_watch_backs_off_and_keeps_the_objects(code: int) -> None:
    async def story(world: World) -> None:
        await world.write(a="1")
        fault = world.inject(RefuseRequest(code), "watch", times=None)
        async with following_cache(world):
            await world.clock.sleep(60.0)
            assert world.cached_objects() == {"a": "1"}
            assert world.cache.problem != ""
            assert world.cache.age >= 59.0
            assert fault.hit_count == world.requests["watch"]
            assert 4 <= world.requests["watch"] <= 20
            await world.write(a="2", b="1")
            world.server.faults.clear()
            await world.clock.sleep(30.0)
            assert world.cached_objects() == await world.server_objects() == {"a": "2", "b": "1"}
            assert world.cache.problem == ""
            assert world.requests["list"] == 1

    run_story(story)


def test_a_compacted_revision_causes_a_list_that_shows_deletions() -> None:
    async def story(world: World) -> None:
        await world.write(a="1", b="1")
        fault = world.inject(RefuseRequest(503), "watch", times=None)
        async with following_cache(world):
            await world.cache.wait_synced()
            await world.write(a="2")
            await world.remove("b")
            await world.server.compact()
            assert world.cached_objects() == {"a": "1", "b": "1"}
            world.server.faults.clear()
            await world.clock.sleep(10.0)
            assert world.cached_objects() == await world.server_objects() == {"a": "2"}
            assert fault.hit_count >= 1
            assert world.requests["list"] == 2

    run_story(story)


def test_a_watch_that_falls_behind_is_ended_and_resumes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watches, "BUFFER", 8)

    async def story(world: World) -> None:
        fault = world.inject(SlowBody(10, 1.0), "watch")
        async with following_cache(world):
            await world.cache.wait_synced()
            await world.settle()
            await world.write(first="1")
            await world.settle()  # from here on its bytes are under way
            await world.write(**{f"m{number}": "1" for number in range(20)})
            await world.clock.sleep(1_000.0)
            assert world.cached_objects() == await world.server_objects()
            assert len(world.cached_objects()) == 21
            assert fault.hit_count == 1
            assert (world.requests["list"], world.requests["watch"] >= 2) == (1, True)

    run_story(story)


def test_a_restart_cuts_the_watch_and_causes_a_list() -> None:
    async def story(world: World) -> None:
        await world.write(a="1", b="1")
        fault = world.inject(Restart(), "get")
        async with following_cache(world):
            await world.cache.wait_synced()
            await world.settle()
            error = await error_of(world.kube.get(CONFIG_MAP_VIEWS, "a", namespace=NAMESPACE))
            assert type(error) is Unavailable
            await world.remove("b")
            await world.clock.sleep(2.0 * BACK_OFF)
            assert world.cached_objects() == await world.server_objects() == {"a": "1"}
            assert fault.hit_count == 1
            assert world.server.open_watches == 1

    run_story(story)
