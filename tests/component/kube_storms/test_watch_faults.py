"""A watch that meets one fault: how the cache gets over it, and what that costs the server."""

import pytest

from libs.kube.errors import Unavailable
from libs.testing.apiserver.faults import (
    Cut,
    DropWatch,
    Hang,
    RefuseRequest,
    Restart,
    SlowBody,
)
from libs.testing.apiserver.storage import watches
from tests.component.kube_storms.world import (
    CONFIG_MAP_VIEWS,
    NAMESPACE,
    World,
    failure,
    following_cache,
    run_story,
)

BACK_OFF = 1.0
"""Seconds that the first pause takes at most."""


@pytest.mark.parametrize("clean", [True, False])
def test_a_dropped_watch_resumes_without_a_list(*, clean: bool) -> None:
    async def story(v: World) -> None:
        fault = v.inject(DropWatch(after=2, clean=clean), "watch")
        async with following_cache(v):
            await v.cache.wait_synced()
            await v.settle()
            await v.write(a="1", b="1", c="1", d="1")
            await v.settle()
            assert v.cached_objects() == {"a": "1", "b": "1"}
            await v.clock.sleep(BACK_OFF)
            assert (
                v.cached_objects()
                == await v.server_objects()
                == {"a": "1", "b": "1", "c": "1", "d": "1"}
            )
            assert fault.hit_count == 1
            assert (v.asked["list"], v.asked["watch"]) == (1, 2)

    run_story(story)


@pytest.mark.parametrize("at", ["before", "after"])
def test_a_watch_cut_while_opening_is_opened_again(at: str) -> None:
    async def story(v: World) -> None:
        fault = v.inject(Cut("before" if at == "before" else "after"), "watch")
        async with following_cache(v):
            await v.cache.wait_synced()
            await v.write(a="1")
            await v.clock.sleep(BACK_OFF)
            assert v.cached_objects() == await v.server_objects() == {"a": "1"}
            assert fault.hit_count == 1
            assert (v.asked["list"], v.asked["watch"]) == (1, 2)
            assert v.server.open_watches == 1

    run_story(story)


def test_a_watch_that_hangs_while_opening_times_out() -> None:
    async def story(v: World) -> None:
        fault = v.inject(Hang(), "watch")
        async with following_cache(v):
            await v.cache.wait_synced()
            await v.write(a="1")
            await v.clock.sleep(9.9)
            assert v.asked["watch"] == 1
            await v.clock.sleep(0.1 + BACK_OFF)
            assert v.cached_objects() == await v.server_objects() == {"a": "1"}
            assert fault.hit_count == 1
            assert (v.asked["list"], v.asked["watch"]) == (1, 2)

    run_story(story)


def test_a_late_event_proves_nothing() -> None:
    async def story(v: World) -> None:
        v.inject(RefuseRequest(503), "watch", times=None)
        ages: list[float] = []
        v.cache.on_change(lambda _old, _new: ages.append(v.cache.age))
        async with following_cache(v):
            await v.cache.wait_synced()
            await v.write(a="1", b="1", c="1")
            await v.clock.sleep(20.0)
            v.server.faults.clear()
            fault = v.inject(DropWatch(after=1), "watch")
            await v.clock.sleep(60.0)
            assert v.cached_objects() == await v.server_objects() == {"a": "1", "b": "1", "c": "1"}
            assert fault.hit_count == 1
            assert ages[0] >= 20.0  # two others were as old, and not there

    run_story(story)


def test_a_bookmark_keeps_its_order_among_slow_events() -> None:
    async def story(v: World) -> None:
        fault = v.inject(SlowBody(50, 1.0), "watch")
        async with following_cache(v):
            await v.cache.wait_synced()
            await v.clock.sleep(57.0)
            await v.write(a="1")
            await v.clock.sleep(4.0)  # it is under way, and a bookmark waits behind it
            await v.write(b="1")
            await v.clock.sleep(60.0)
            assert v.cached_objects() == await v.server_objects() == {"a": "1", "b": "1"}
            assert v.cache.problem == ""
            assert fault.hit_count == 1
            assert (v.asked["list"], v.asked["watch"]) == (1, 1)

    run_story(story)


@pytest.mark.parametrize("code", [401, 403, 429, 500, 503, 504])
def test_a_refused_watch_backs_off_and_keeps_the_objects(code: int) -> None:
    async def story(v: World) -> None:
        await v.write(a="1")
        fault = v.inject(RefuseRequest(code), "watch", times=None)
        async with following_cache(v):
            await v.clock.sleep(60.0)
            assert v.cached_objects() == {"a": "1"}
            assert v.cache.problem != ""
            assert v.cache.age >= 59.0
            assert fault.hit_count == v.asked["watch"]
            assert 4 <= v.asked["watch"] <= 20
            await v.write(a="2", b="1")
            v.server.faults.clear()
            await v.clock.sleep(30.0)
            assert v.cached_objects() == await v.server_objects() == {"a": "2", "b": "1"}
            assert v.cache.problem == ""
            assert v.asked["list"] == 1

    run_story(story)


def test_a_compacted_revision_causes_a_list_that_shows_deletions() -> None:
    async def story(v: World) -> None:
        await v.write(a="1", b="1")
        fault = v.inject(RefuseRequest(503), "watch", times=None)
        async with following_cache(v):
            await v.cache.wait_synced()
            await v.write(a="2")
            await v.remove("b")
            await v.server.compact()
            assert v.cached_objects() == {"a": "1", "b": "1"}
            v.server.faults.clear()
            await v.clock.sleep(10.0)
            assert v.cached_objects() == await v.server_objects() == {"a": "2"}
            assert fault.hit_count >= 1
            assert v.asked["list"] == 2

    run_story(story)


def test_a_watch_that_falls_behind_is_ended_and_resumes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watches, "BUFFER", 8)

    async def story(v: World) -> None:
        fault = v.inject(SlowBody(10, 1.0), "watch")
        async with following_cache(v):
            await v.cache.wait_synced()
            await v.settle()
            await v.write(first="1")
            await v.settle()  # from here on its bytes are under way
            await v.write(**{f"m{number}": "1" for number in range(20)})
            await v.clock.sleep(1_000.0)
            assert v.cached_objects() == await v.server_objects()
            assert len(v.cached_objects()) == 21
            assert fault.hit_count == 1
            assert (v.asked["list"], v.asked["watch"] >= 2) == (1, True)

    run_story(story)


def test_a_restart_cuts_the_watch_and_causes_a_list() -> None:
    async def story(v: World) -> None:
        await v.write(a="1", b="1")
        fault = v.inject(Restart(), "get")
        async with following_cache(v):
            await v.cache.wait_synced()
            await v.settle()
            error = await failure(v.kube.get(CONFIG_MAP_VIEWS, "a", namespace=NAMESPACE))
            assert type(error) is Unavailable
            await v.remove("b")
            await v.clock.sleep(2.0 * BACK_OFF)
            assert v.cached_objects() == await v.server_objects() == {"a": "1"}
            assert fault.hit_count == 1
            assert v.server.open_watches == 1

    run_story(story)
