"""A watch that meets one fault: how the cache gets over it, and what that costs the server."""

import pytest

from libs.kube.errors import Unavailable
from libs.testing.apiserver.faults import (
    Cut,
    Delay,
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
def test_a_watch_that_breaks_off_goes_on_where_it_was_without_a_list(*, clean: bool) -> None:
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


@pytest.mark.parametrize("clean", [True, False])
def test_all_watches_end_at_once_and_nothing_is_lost(*, clean: bool) -> None:
    async def story(v: World) -> None:
        async with following_cache(v):
            await v.cache.wait_synced()
            await v.settle()
            assert v.server.faults.drop_watches(clean=clean) == 1
            await v.write(a="1")
            await v.clock.sleep(BACK_OFF)
            assert v.cached_objects() == await v.server_objects() == {"a": "1"}
            assert (v.asked["list"], v.asked["watch"]) == (1, 2)

    run_story(story)


def test_an_event_that_is_cut_in_the_middle_is_told_again_whole() -> None:
    async def story(v: World) -> None:
        fault = v.inject(Cut("body"), "watch")
        async with following_cache(v):
            await v.cache.wait_synced()
            await v.settle()
            await v.write(a="1")
            await v.settle()
            assert v.cached_objects() == {}
            assert "cut" in v.cache.problem
            await v.clock.sleep(BACK_OFF)
            assert v.cached_objects() == await v.server_objects() == {"a": "1"}
            assert v.cache.problem == ""
            assert fault.hit_count == 1
            assert (v.asked["list"], v.asked["watch"]) == (1, 2)

    run_story(story)


@pytest.mark.parametrize("at", ["before", "after"])
def test_a_watch_that_is_cut_off_as_it_opens_is_opened_again(at: str) -> None:
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


def test_a_watch_that_hangs_as_it_opens_is_given_up_after_ten_seconds() -> None:
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


def test_a_watch_that_opens_late_tells_what_happened_meanwhile() -> None:
    async def story(v: World) -> None:
        fault = v.inject(Delay(6.0), "watch")
        async with following_cache(v):
            await v.cache.wait_synced()
            await v.write(a="1")
            await v.clock.sleep(5.9)
            assert v.cached_objects() == {}
            await v.clock.sleep(0.2)
            assert v.cached_objects() == await v.server_objects() == {"a": "1"}
            assert fault.hit_count == 1
            assert (v.asked["list"], v.asked["watch"]) == (1, 1)

    run_story(story)


def test_an_event_that_comes_late_proves_nothing_about_now() -> None:
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


def test_a_bookmark_keeps_its_place_among_the_events() -> None:
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


def test_an_event_whose_bytes_trickle_is_told_when_it_is_whole() -> None:
    async def story(v: World) -> None:
        fault = v.inject(SlowBody(50, 1.0), "watch")
        async with following_cache(v):
            await v.cache.wait_synced()
            await v.settle()
            await v.write(a="1")
            await v.clock.sleep(4.0)
            assert v.cached_objects() == {}
            await v.clock.sleep(30.0)
            assert v.cached_objects() == await v.server_objects() == {"a": "1"}
            assert fault.hit_count == 1
            assert (v.asked["list"], v.asked["watch"]) == (1, 1)

    run_story(story)


@pytest.mark.parametrize("code", [401, 403, 429, 500, 503, 504])
def test_a_watch_that_is_refused_backs_off_says_why_and_keeps_what_is_known(code: int) -> None:
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


def test_a_revision_that_was_compacted_away_makes_a_new_list_and_misses_no_deletion() -> None:
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


def test_more_changes_than_the_server_remembers_make_a_new_list() -> None:
    async def story(v: World) -> None:
        fault = v.inject(RefuseRequest(503), "watch", times=None)
        async with following_cache(v):
            await v.cache.wait_synced()
            await v.write(**{f"m{number}": "1" for number in range(9)})
            v.server.faults.clear()
            await v.clock.sleep(10.0)
            assert v.cached_objects() == await v.server_objects()
            assert len(v.cached_objects()) == 9
            assert fault.hit_count >= 1
            assert v.asked["list"] == 2

    run_story(story, remembers=5)


def test_a_watch_that_does_not_keep_up_is_ended_and_goes_on(
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


def test_a_restart_cuts_the_watch_and_what_it_forgot_is_listed_anew() -> None:
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
