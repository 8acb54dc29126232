"""One fault at a time: how a cache recovers from it, and which error a write gets."""

import pytest

from libs.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    KubeError,
    TimedOut,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from libs.testing.apiserver import watches
from libs.testing.apiserver.faults import (
    Cut,
    Delay,
    DropWatch,
    FaultEffect,
    Hang,
    RefuseRequest,
    Restart,
    SlowBody,
    Stale,
)
from tests.unit.kube.world import (
    CONFIG_MAP_VIEWS,
    NAMESPACE,
    World,
    error_of,
    following_cache,
    in_virtual_time,
    manifest,
)

BACK_OFF = 1.0
"""Upper limit of the first back-off in seconds."""


@pytest.mark.parametrize(
    ("effect", "within"),
    [
        (DropWatch(after=2), BACK_OFF),
        (DropWatch(after=2, clean=False), BACK_OFF),
        (Cut("before"), BACK_OFF),
        (Cut("after"), BACK_OFF),
        (Hang(), 10.0 + BACK_OFF),
    ],
)
@in_virtual_time()
async def test_a_failed_watch_resumes_without_a_list(
    world: World, effect: FaultEffect, within: float
) -> None:
    fault = world.inject(effect, "watch")
    async with following_cache(world):
        await world.settle()
        await world.write(a="1", b="1", c="1")
        await world.settle()
        assert len(world.cache) < 3
        await world.clock.sleep(within)
        await world.assert_current({"a": "1", "b": "1", "c": "1"})
        assert fault.hit_count == 1
        assert world.requests == {"list": 1, "watch": 2}


@pytest.mark.parametrize("code", [401, 403, 429, 500])
@in_virtual_time()
async def test_a_refused_watch_backs_off_and_keeps_the_objects(world: World, code: int) -> None:
    await world.write(a="1")
    fault = world.inject(RefuseRequest(code), "watch", times=None)
    async with following_cache(world, synced=False):
        await world.clock.sleep(60.0)
        assert world.cached_objects() == {"a": "1"}
        assert world.cache.problem != ""
        assert world.cache.age >= 59.0
        assert fault.hit_count == world.requests["watch"]
        assert 4 <= world.requests["watch"] <= 20
        await world.write(a="2", b="1")
        world.server.faults.clear()
        await world.clock.sleep(30.0)
        await world.assert_current({"a": "2", "b": "1"})
        assert world.cache.problem == ""
        assert world.requests["list"] == 1


@in_virtual_time()
async def test_a_watch_that_falls_behind_is_ended_and_resumes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "BUFFER", 8)
    fault = world.inject(SlowBody(10, 1.0), "watch")
    async with following_cache(world):
        await world.settle()
        await world.write(first="1")
        await world.settle()  # its first bytes are sent now
        await world.write(**{f"m{number}": "1" for number in range(20)})
        await world.clock.sleep(1_000.0)
        assert world.cached_objects() == await world.server_objects()
        assert len(world.cache) == 21
        assert fault.hit_count == 1
        assert world.requests["list"] == 1
        assert world.requests["watch"] >= 2


@in_virtual_time()
async def test_a_restart_cuts_the_watch_and_causes_a_list(world: World) -> None:
    await world.write(a="1", b="1")
    fault = world.inject(Restart(), "get")
    async with following_cache(world):
        await world.settle()
        error = await error_of(world.kube.get(CONFIG_MAP_VIEWS, "a", namespace=NAMESPACE))
        assert type(error) is Unavailable
        await world.remove("b")
        await world.clock.sleep(2.0 * BACK_OFF)
        await world.assert_current({"a": "1"})
        assert fault.hit_count == 1
        assert world.server.open_watches == 1


@pytest.mark.parametrize("cut", [Cut("before"), Cut("after"), Cut("body")])
@in_virtual_time()
async def test_a_truncated_list_is_discarded_and_requested_again(world: World, cut: Cut) -> None:
    await world.write(a="1", b="1")
    fault = world.inject(cut, "list")
    async with following_cache(world, synced=False):
        await world.settle()
        assert world.cached_objects() == {}
        assert not world.cache.is_synced
        assert "cut" in world.cache.problem
        await world.clock.sleep(1.0)
        await world.assert_current({"a": "1", "b": "1"})
        assert world.cache.problem == ""
        assert fault.hit_count == 1
        assert world.requests["list"] == 2


@in_virtual_time()
async def test_a_slow_list_is_completed_within_its_timeout_or_requested_again(world: World) -> None:
    await world.write(a="1", b="1")
    size = len(await world.kube.request("GET", "/api/v1/namespaces/default/configmaps"))
    world.wire.requests.clear()
    endless = world.inject(SlowBody(1, 1.0), "list")
    async with following_cache(world, synced=False):
        await world.clock.sleep(30.0)
        assert world.cached_objects() == {}
        world.inject(SlowBody(size // 4 + 1, 2.0), "list")
        before = world.clock.monotonic()
        await world.cache.wait_synced()
        assert 8.0 <= world.clock.monotonic() - before <= 9.0
        await world.assert_current({"a": "1", "b": "1"})
        assert endless.hit_count == 1
        assert world.requests["list"] == 2


@in_virtual_time()
async def test_a_cache_never_requests_a_list_from_the_cache_of_the_server(world: World) -> None:
    await world.write(a="1")
    await world.write(a="2")
    fault = world.inject(Stale(1), times=None)
    async with following_cache(world):
        assert world.cached_objects() == {"a": "2"}
        assert fault.hit_count == 0


@pytest.mark.parametrize(
    ("effect", "error_type", "carried_out"),
    [
        (RefuseRequest(401), Unauthorized, False),
        (RefuseRequest(403), Forbidden, False),
        (RefuseRequest(409), Conflict, False),
        (RefuseRequest(429), TooManyRequests, False),
        (RefuseRequest(500), Unavailable, False),
        (RefuseRequest(504), TimedOut, False),
        (Cut("before"), Unavailable, False),
        (Cut("after"), Unavailable, True),
        (Cut("body"), Unavailable, True),
        (Hang(), TimedOut, False),
        (Delay(5.0), TimedOut, False),  # the server drops it at the client's deadline
        (Delay(5.0, where="way"), TimedOut, True),  # after the client's deadline
        (Restart(), Unavailable, False),
    ],
)
@in_virtual_time()
async def test_a_failed_write_is_a_typed_error_and_not_retried(
    world: World, effect: FaultEffect, error_type: type[KubeError], carried_out: bool
) -> None:
    fault = world.inject(effect, "create")
    creation = world.kube.create(CONFIG_MAP_VIEWS, manifest("m"), namespace=NAMESPACE, within=3.0)
    assert type(await error_of(creation)) is error_type
    assert world.clock.monotonic() == (3.0 if error_type is TimedOut and not _is_504(effect) else 0)
    await world.clock.sleep(60.0)
    assert fault.hit_count == world.requests["POST"] == 1
    assert world.committed() == ([("create", "m")] if carried_out else [])
    again = world.kube.create(CONFIG_MAP_VIEWS, manifest("m"), namespace=NAMESPACE)
    if carried_out:
        assert type(await error_of(again)) is AlreadyExists
    else:
        assert (await again).data == {"value": "1"}


def _is_504(effect: FaultEffect) -> bool:
    return effect == RefuseRequest(504)


@in_virtual_time()
async def test_a_slow_response_is_read_within_the_timeout(world: World) -> None:
    path = CONFIG_MAP_VIEWS.path(namespace=NAMESPACE, name="m")
    await world.write(m="1")
    size = len(await world.kube.request("GET", path))
    world.inject(SlowBody(size // 4 + 1, 2.0), "get", times=None)
    assert await world.kube.get(CONFIG_MAP_VIEWS, "m", namespace=NAMESPACE)
    assert world.clock.monotonic() == 8.0
    late = world.kube.get(CONFIG_MAP_VIEWS, "m", namespace=NAMESPACE, within=5.0)
    assert type(await error_of(late)) is TimedOut
    assert world.clock.monotonic() == 13.0


@in_virtual_time()
async def test_a_write_based_on_a_stale_list_is_a_conflict(world: World) -> None:
    await world.write(m="1")
    await world.write(m="2")
    world.inject(Stale(1), times=None)
    page = await world.kube.list_page(CONFIG_MAP_VIEWS, namespace=NAMESPACE, resource_version="0")
    assert [view.data for view in page.items] == [{"value": "1"}]
    revision = page.items[0].metadata.resource_version
    merge = world.kube.merge(
        CONFIG_MAP_VIEWS, "m", {"data": {}}, namespace=NAMESPACE, resource_version=revision
    )
    assert type(await error_of(merge)) is Conflict
    assert world.committed() == []
