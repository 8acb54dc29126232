"""The cache: lookups, reported changes, recorded writes, and proofs that it is current."""

import asyncio
import math
from typing import Any

import msgspec
import pytest

from libs.kube.cache import Cache
from libs.kube.errors import Unavailable
from libs.testing.apiserver.faults import Delay, Hang, RefuseRequest, SlowBody
from libs.testing.simulation import Sim, run
from tests.unit.kube.raw_http import RawResponse, ok
from tests.unit.kube.world import (
    CONFIG_MAP_VIEWS,
    DEAD,
    NAMESPACE,
    ConfigMapView,
    World,
    following_cache,
    in_virtual_time,
    manifest,
)

PATH = CONFIG_MAP_VIEWS.path(namespace=NAMESPACE)
FORBIDDEN = f"GET {PATH}: forbidden by a fault; grant it in RBAC"


def names_by_value(world: World, value: str) -> list[str]:
    return sorted(view.metadata.name for view in world.cache.by_index("value", value))


def at_revision(view: ConfigMapView, revision: int, **metadata: Any) -> ConfigMapView:
    changed = msgspec.structs.replace(view.metadata, resource_version=str(revision), **metadata)
    return msgspec.structs.replace(view, metadata=changed)


async def write_many(world: World) -> None:
    """Write more objects than a probe requests."""
    await world.write(**{f"n{number:02}": "1" for number in range(30)})


async def write_elsewhere(world: World) -> None:
    """Write an object that the watch does not deliver: only a bookmark shows the revision."""
    await world.other.create(CONFIG_MAP_VIEWS, manifest("elsewhere"), namespace="kube-system")


def last_limits(world: World, count: int) -> list[str | None]:
    return [request.query.get("limit") for request in world.wire.requests[-count:]]


@in_virtual_time()
async def test_objects_are_found_by_key_and_by_index(world: World) -> None:
    await world.write(a="x y", b="x")
    assert not world.cache.is_synced
    async with following_cache(world):
        assert world.cache.is_synced
        assert len(world.cache) == 2
        assert names_by_value(world, "x") == ["a", "b"]
        assert names_by_value(world, "y") == ["a"]
        await world.write(a="z")
        await world.remove("b")
        await world.settle()
        assert [names_by_value(world, value) for value in "xyz"] == [[], [], ["a"]]
        assert world.cache.by_index("value", "z") == [world.cache.get("default/a")]
        assert world.cache.get("default/b") is None
        assert world.cache.revision == world.server.revision
        assert world.requests == {"list": 1, "watch": 1}


@in_virtual_time()
async def test_each_change_is_reported_once_until_unsubscribed(world: World) -> None:
    await world.write(a="1")
    async with following_cache(world):
        await world.write(a="2", b="1")
        await world.remove("a")
        await world.settle()
        assert world.changes == ["none -> a=1", "a=1 -> a=2", "none -> b=1", "a=2 -> none"]
        unsubscribe = world.cache.on_change(lambda _old, _new: pytest.fail("unsubscribed"))
        unsubscribe()
        await world.write(b="2")
        await world.settle()
        assert world.changes[4:] == ["b=1 -> b=2"]


@in_virtual_time()
async def test_a_failing_handler_does_not_starve_the_others(world: World) -> None:
    calls: list[str] = []

    def fail(_old: ConfigMapView | None, _new: ConfigMapView | None) -> None:
        raise LookupError("unexpected object")

    world.cache.on_change(fail)
    world.cache.on_change(lambda _old, new: calls.append(new.metadata.name if new else ""))
    for name in "bc":
        with pytest.raises(LookupError):
            world.cache.record_write(await world.apply(name, "1"))
    assert calls == ["b", "c"]


@in_virtual_time()
async def test_a_new_list_reports_only_differences(world: World) -> None:
    await world.write(a="x", b="x", c="x")
    world.inject(RefuseRequest(500), "watch", times=None)
    async with following_cache(world):
        world.changes.clear()
        await world.remove("a")
        await world.write(b="y", d="x")
        await world.server.compact()
        world.server.faults.clear()
        await world.clock.sleep(5.0)
        assert world.changes == ["a=x -> none", "b=x -> b=y", "none -> d=x"]
        assert (names_by_value(world, "x"), names_by_value(world, "y")) == (["c", "d"], ["b"])
        assert world.requests["list"] == 2


@in_virtual_time()
async def test_the_first_list_is_reported_before_the_cache_is_synced(world: World) -> None:
    states: list[tuple[bool, int]] = []
    world.cache.on_change(
        lambda _old, _new: states.append((world.cache.is_synced, len(world.cache)))
    )
    await world.write(a="1", b="1")
    async with following_cache(world):
        await world.write(c="1")
        await world.settle()
        assert states == [(False, 2), (False, 2), (True, 3)]


@in_virtual_time()
async def test_a_recorded_write_is_visible_at_once_and_reported_once(world: World) -> None:
    async with following_cache(world):
        world.inject(SlowBody(10_000, 1.0), "watch")
        world.server.faults.drop_watches()
        await world.clock.sleep(1.0)
        for value in "12":
            world.cache.record_write(await world.apply("a", value))
        expected = ["none -> a=1", "a=1 -> a=2"]
        assert world.changes == expected
        await world.clock.sleep(10.0)
        assert world.changes == expected
        assert world.cache.revision == world.server.revision


@in_virtual_time()
async def test_an_old_response_neither_reverts_nor_revives_an_object(world: World) -> None:
    async with following_cache(world):
        first, second = await world.apply("a", "1"), await world.apply("a", "2")
        await world.settle()
        for response in (first, second):
            world.cache.record_write(response)
        assert world.cache.get("default/a") == second
        await world.remove("a")
        await world.settle()
        for response in (first, second):
            world.cache.record_write(response)
        assert world.cache.get("default/a") is None
        recreated = await world.apply("a", "3")
        for response in (recreated, second):
            world.cache.record_write(response)
        await world.settle()
        assert world.cache.get("default/a") == recreated
        assert world.changes == ["none -> a=1", "a=1 -> a=2", "a=2 -> none", "none -> a=3"]


@in_virtual_time()
async def test_a_late_deletion_does_not_remove_the_recreated_object(world: World) -> None:
    await world.write(a="1")
    world.inject(SlowBody(10_000, 5.0), "watch")
    async with following_cache(world):
        await world.settle()
        await world.remove("a")
        recreated = await world.apply("a", "2")
        world.cache.record_write(recreated)
        await world.clock.sleep(60.0)
        assert world.cache.get("default/a") == recreated
        assert world.changes == ["none -> a=1", "a=1 -> a=2"]


@in_virtual_time()
async def test_a_list_requested_before_a_write_does_not_revert_it(world: World) -> None:
    await world.write(a="1", b="1")
    old_list = await world.other.request("GET", PATH)
    world.wire.reply(RawResponse(content=old_list), verb="list")
    written = [await world.apply(name, "2") for name in "ac"]
    for view in written:
        world.cache.record_write(view)
    async with following_cache(world):
        await world.settle()
        assert world.changes == ["none -> a=2", "none -> c=2", "none -> b=1"]


@in_virtual_time(labels="app=x")
async def test_a_cache_with_selectors_ignores_writes_of_unknown_objects(world: World) -> None:
    async def apply(name: str, app: str) -> ConfigMapView:
        wanted = manifest(name, app)
        wanted["metadata"]["labels"] = {"app": app}
        return await world.other.apply(CONFIG_MAP_VIEWS, wanted, force=True, namespace=NAMESPACE)

    await apply("a", "x")
    world.inject(SlowBody(10_000, 5.0), "watch")
    async with following_cache(world):
        moved, other = await apply("a", "y"), await apply("b", "x")
        world.cache.record_write(moved)
        world.cache.record_write(at_revision(other, 99))
        assert world.changes == ["none -> a=x", "a=x -> a=y"]
        # The deletion has the revision of the write that took `a` out of the selection.
        await world.clock.sleep(60.0)
        assert world.cached_objects() == {"b": "x"}


@in_virtual_time()
async def test_a_cache_of_a_namespace_ignores_other_namespaces(world: World) -> None:
    view = await world.apply("a", "1")
    for namespace in (NAMESPACE, "elsewhere"):
        world.cache.record_write(at_revision(view, 99, namespace=namespace))
    assert [cached.metadata.key for cached in world.cache] == ["default/a"]


@in_virtual_time()
async def test_the_age_is_the_time_since_the_last_proof(world: World) -> None:
    assert world.cache.age == math.inf
    await world.write(a="1")
    world.inject(Delay(2.0), "list")
    async with following_cache(world):
        assert world.cache.age == 2.0  # a list proves the time of its request
        await world.settle()
        await write_elsewhere(world)
        await world.clock.sleep(70.0)  # a bookmark a minute
        assert world.cache.age == pytest.approx(10.0, abs=0.1)
        await world.clock.sleep(20.0)
        await world.write(a="2")
        await world.settle()
        assert world.cache.age == pytest.approx(0.001)


@in_virtual_time()
async def test_old_events_of_a_resumed_watch_prove_nothing(world: World) -> None:
    async with following_cache(world):
        await world.settle()
        listed_at = world.clock.monotonic() - world.cache.age
        world.inject(RefuseRequest(500), "watch")
        world.server.faults.drop_watches()
        await world.write(a="1")
        while world.cache.get("default/a") is None:
            await world.clock.sleep(1.0)
        assert world.clock.monotonic() - listed_at == world.cache.age
        await write_elsewhere(world)
        await world.clock.sleep(61.0)  # a bookmark
        await world.write(b="1")
        await world.settle()
        assert world.cache.age == pytest.approx(0.001)


@in_virtual_time()
async def test_a_small_kind_is_proven_current_by_one_request(world: World) -> None:
    await world.write(a="1")
    world.inject(SlowBody(10_000, 100.0), "watch")  # a connection that seems dead
    async with following_cache(world):
        await world.write(b="1")
        await world.remove("a")
        await world.clock.sleep(50.0)
        assert await world.cache.verify_current(within=5.0)
        assert world.cache.age == 0.0
        assert world.cached_objects() == {"b": "1"}
        assert world.cache.revision == world.server.revision
        assert world.requests == {"list": 2, "watch": 1}
        assert world.wire.requests[-1].query == {"limit": "20"}
        # The connection delivers again: events that are older than the probe.
        await world.clock.sleep(150.0)
        await world.write(c="1")
        await world.clock.sleep(300.0)
        assert world.changes == ["none -> a=1", "a=1 -> none", "none -> b=1", "none -> c=1"]
        assert world.cache.problem == ""


@in_virtual_time()
async def test_a_large_kind_is_proven_current_when_the_watch_catches_up(world: World) -> None:
    await write_many(world)
    async with following_cache(world):
        await world.clock.sleep(50.0)
        world.inject(SlowBody(10_000, 0.5), "watch")
        world.server.faults.drop_watches()
        await world.clock.sleep(2.0)
        await world.write(n00="2")
        before = world.requests["list"], world.clock.monotonic()
        assert await world.cache.verify_current(within=5.0)
        assert world.clock.monotonic() - before[1] == pytest.approx(0.5)
        assert world.requests["list"] == before[0] + 1


@in_virtual_time()
async def test_a_quiet_large_kind_is_listed_for_a_proof(world: World) -> None:
    await write_many(world)
    world.inject(SlowBody(10_000, DEAD), "watch")
    async with following_cache(world):
        await world.settle()
        await world.write(n00="2")
        await world.clock.sleep(50.0)
        proofs = [world.cache.verify_current(within=5.0) for _ in range(5)]
        assert await asyncio.gather(*proofs) == [True] * 5
        assert world.cache.age <= 1.0
        assert world.cache.revision == world.server.revision
        assert world.changes[30:] == ["n00=1 -> n00=2"]
        assert last_limits(world, 7)[:6] == ["20"] * 5 + ["500"]


@in_virtual_time()
async def test_a_list_older_than_a_probe_is_ignored(world: World) -> None:
    await world.write(a="1", b="1")
    old_list = await world.other.request("GET", PATH)
    async with following_cache(world):
        await world.settle()
        world.inject(RefuseRequest(410), "watch")
        world.server.faults.drop_watches()
        world.wire.reply(RawResponse(content=old_list, late=5.0), verb="list")
        await world.remove("b")
        await world.write(a="2")
        await world.clock.sleep(2.0)
        assert last_limits(world, 1) == ["500"]
        assert await world.cache.verify_current(within=1.0)
        expected = ["none -> a=1", "none -> b=1", "b=1 -> none", "a=1 -> a=2"]
        assert world.changes == expected
        await world.clock.sleep(6.0)
        assert world.changes == expected
        await world.write(c="1")
        await world.clock.sleep(5.0)
        assert world.changes == [*expected, "none -> c=1"]
        assert world.cache.problem == ""


@pytest.mark.parametrize("request_of", ["probe", "list"])
@in_virtual_time()
async def test_an_object_without_a_revision_does_not_end_the_cache(
    world: World, request_of: str
) -> None:
    item = {"metadata": {"name": "a", "namespace": NAMESPACE}}
    bad = ok({"metadata": {"resourceVersion": "9999"}, "items": [item]})
    async with following_cache(world):
        await world.settle()
        world.wire.reply(bad, verb="list")
        if request_of == "probe":
            assert not await world.cache.verify_current(within=5.0)
        else:
            world.inject(RefuseRequest(410), "watch")
            world.inject(RefuseRequest(500), "list")
            world.server.faults.drop_watches()
            await world.clock.sleep(1.0)
        assert "the revision '' is not a number" in world.cache.problem
        await world.clock.sleep(60.0)
        assert await world.cache.verify_current(within=5.0)
        assert world.cache.problem == ""


@in_virtual_time()
async def test_a_restored_cluster_is_listed_again(world: World) -> None:
    await world.write(a="1", b="1")
    async with following_cache(world):
        await world.settle()
        old = world.server
        world.start_server()
        await old.stop()
        await world.write(a="restored")
        assert await world.cache.verify_current(within=20.0)
        await world.assert_current({"a": "restored"})
        assert world.cache.revision == world.server.revision


@pytest.mark.parametrize(
    ("effect", "seconds", "problem"),
    [
        (Hang(), 4.0, "the watch did not reach the server's revision within 4 s"),
        (
            RefuseRequest(403),
            0.0,
            f"cannot read the server's current revision: {FORBIDDEN}",
        ),
    ],
    ids=["hangs", "refused"],
)
@in_virtual_time()
async def test_a_failed_proof_names_its_reason(
    world: World, effect: Hang | RefuseRequest, seconds: float, problem: str
) -> None:
    async with following_cache(world):
        await world.clock.sleep(50.0)
        world.inject(effect, "list")
        before = world.clock.monotonic()
        assert not await world.cache.verify_current(within=4.0)
        assert world.clock.monotonic() == before + seconds
        assert world.cache.age == 50.0 + seconds
        assert world.cache.problem == problem
        assert await world.cache.verify_current(within=4.0)
        assert world.cache.problem == ""


@in_virtual_time()
async def test_a_silent_watch_of_a_large_kind_is_not_proven_without_a_list(world: World) -> None:
    await write_many(world)
    world.inject(SlowBody(10_000, DEAD), "watch")
    async with following_cache(world):
        await world.settle()
        await world.write(n00="2")
        world.wire.reply(await _first_page(world), verb="list")
        world.inject(RefuseRequest(500), "list", times=20)
        assert not await world.cache.verify_current(within=4.0)
        assert world.cache.problem.startswith("GET /api/v1/namespaces/default/configmaps: Internal")
        world.server.faults.clear()
        assert await world.cache.verify_current(within=40.0)


async def _first_page(world: World) -> RawResponse:
    path = PATH
    return RawResponse(content=await world.other.request("GET", path, query={"limit": "20"}))


@pytest.mark.parametrize("activity", ["follow", "list", "prove"])
def test_cancellation_at_any_step_leaves_nothing_behind(activity: str) -> None:
    async def main(sim: Sim) -> None:
        world = World(sim)
        await write_many(world)
        for steps in range(60):
            cache = Cache(world.kube, CONFIG_MAP_VIEWS, env=sim.env(), namespace=NAMESPACE)
            coroutine = {
                "follow": cache.run,
                "list": lambda: world.kube.list_all(CONFIG_MAP_VIEWS, limit=5),
                "prove": lambda cache=cache: cache.verify_current(within=5.0),
            }[activity]()
            task = asyncio.create_task(coroutine)
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled() or activity == "list"
            assert world.wire.open_now == world.server.open_watches == 0
            assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main, seed=1)


@in_virtual_time()
async def test_a_stopped_cache_can_run_again(world: World) -> None:
    await world.write(a="1")
    async with following_cache(world):
        pass
    await world.write(b="1")
    async with following_cache(world):
        await world.settle()
        await world.assert_current({"a": "1", "b": "1"})


@in_virtual_time()
async def test_a_cut_connection_keeps_the_objects(world: World) -> None:
    await world.write(a="1")
    async with following_cache(world):
        await world.settle()
        await world.server.stop()
        with pytest.raises(Unavailable):
            await world.kube.get(CONFIG_MAP_VIEWS, "a", namespace=NAMESPACE)
        await world.clock.sleep(20.0)
        assert world.cached_objects() == {"a": "1"}
        assert "cut" in world.cache.problem
        assert 19.0 <= world.cache.age <= 20.1
        await world.server.start()
        await world.write(a="2", b="1")
        await world.clock.sleep(30.0)
        await world.assert_current({"a": "2", "b": "1"})
        assert world.cache.problem == ""
