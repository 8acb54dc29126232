"""What a cache answers, whom it tells, what it learns, and how it knows that it is right."""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.errors import Gone, Unavailable
from libs.kube.requests import Request, Response
from libs.kube.resources import CONFIG_MAPS, Resource
from libs.kube.views import Object
from libs.runtime.tasks import Tasks
from libs.testing.simulation import Sim, run
from tests.unit.kube.fake_api_server import (
    CannedResponse,
    FakeApiServer,
    JsonObject,
    encode,
    status_body,
)


class Map(Object, frozen=True, kw_only=True):
    """A config map with its data."""

    data: dict[str, str] = {}


MAPS = Resource(plural="configmaps", kind="ConfigMap", view=Map)


class World:
    """A server and a cache that follows it; what it tells is written down."""

    def __init__(self, sim: Sim, **part: str) -> None:
        self.sim = sim
        self.clock = sim.clock
        self.server = FakeApiServer(sim.clock)
        self.cache = Cache(
            Kube(self.server, manager="test", clock=sim.clock),
            MAPS,
            env=sim.env("cache"),
            indexes={"app": lambda view: view.data.get("app", "").split()},
            **part,
        )
        self.told: list[str] = []
        self.cache.on_change(self._tell)
        self.failed: list[Exception] = []
        self.tasks = Tasks("cache", failed=self.failed.append)

    def _tell(self, old: Map | None, new: Map | None) -> None:
        self.told.append(" -> ".join(_short(view) for view in (old, new)))

    async def follow(self) -> None:
        self.tasks.forever("following", self.cache.run())
        await self.cache.wait_synced()

    async def settle(self) -> None:
        """Let what was sent arrive."""
        await self.clock.sleep(0.001)

    def names(self) -> list[str]:
        return sorted(view.metadata.name for view in self.cache)

    def under(self, app: str) -> list[str]:
        return sorted(view.metadata.name for view in self.cache.by_index("app", app))


def _short(view: Map | None) -> str:
    meta = view.metadata if view else None
    return f"{meta.name}@{meta.resource_version}" if meta else "-"


def view(thing: JsonObject, *, revision: int | None = None) -> Map:
    made = msgspec.convert(thing, Map)
    if revision is None:
        return made
    meta = msgspec.structs.replace(made.metadata, resource_version=str(revision))
    return msgspec.structs.replace(made, metadata=meta)


def run_story(story: Callable[[World], Awaitable[None]], *, seed: int = 1, **how: Any) -> None:
    async def main(sim: Sim) -> None:
        world = World(sim, **how)
        try:
            await story(world)
        finally:
            await world.tasks.close()
        assert world.failed == []

    run(main, seed=seed)


def test_lookups_by_key_and_by_index() -> None:
    async def story(world: World) -> None:
        server, cache = world.server, world.cache
        server.put("a", app="x y")
        server.put("b", app="x")
        assert not cache.is_synced
        await world.follow()
        assert cache.is_synced
        assert world.names() == ["a", "b"]
        assert len(cache) == 2
        assert (world.under("x"), world.under("y"), world.under("z")) == (["a", "b"], ["a"], [])
        server.put("a", app="z")
        server.delete("b")
        await world.settle()
        assert (world.under("x"), world.under("y"), world.under("z")) == ([], [], ["a"])
        assert cache.by_index("app", "z") == [cache.get("a")]
        assert cache.get("b") is None
        assert cache.revision == 14
        assert len(server.asked) == 2

    run_story(story)


def test_each_change_is_reported_once_until_unsubscribed() -> None:
    async def story(world: World) -> None:
        server = world.server
        server.put("a")
        await world.follow()
        server.put("a", more="x")
        server.put("b")
        server.delete("a")
        await world.settle()
        assert world.told == ["- -> a@11", "a@11 -> a@12", "- -> b@13", "a@12 -> -"]
        leave = world.cache.on_change(lambda old, new: world.told.append("other"))
        leave()
        server.put("b", more="x")
        await world.settle()
        assert world.told[4:] == ["b@13 -> b@15"]

    run_story(story)


def test_a_failing_handler_does_not_starve_the_others() -> None:
    async def story(world: World) -> None:
        world.server.put("a")
        await world.follow()
        heard: list[str] = []

        def fail(old: Map | None, new: Map | None) -> None:
            raise LookupError("an object that nobody thought of")

        leave = world.cache.on_change(fail)
        world.cache.on_change(lambda old, new: heard.append(f"{_short(old)} -> {_short(new)}"))
        for name in "bc":
            made = view(world.server.put(name))
            with pytest.raises(LookupError):
                world.cache.record_write(made)
        leave()
        assert heard == ["- -> b@12", "- -> c@13"]

    run_story(story)


def test_a_new_list_reports_only_differences() -> None:
    async def story(world: World) -> None:
        server = world.server
        for name in "abc":
            server.put(name, app="x")
        await world.follow()
        world.told.clear()
        server.watches[0].over = True  # this connection tells nothing more
        server.delete("a")
        server.put("b", app="y")
        server.put("d", app="x")
        server.compact()
        server.watches[0].over = False
        server.end_watches(Unavailable("watch", "cut"))
        await world.clock.sleep(1.0)
        assert world.told == ["a@11 -> -", "b@12 -> b@15", "- -> d@16"]
        assert (world.under("x"), world.under("y")) == (["c", "d"], ["b"])

    run_story(story)


def test_the_first_list_is_reported_before_the_cache_is_synced() -> None:
    async def story(world: World) -> None:
        seen: list[tuple[bool, int]] = []
        world.cache.on_change(
            lambda old, new: seen.append((world.cache.is_synced, len(world.cache)))
        )
        world.server.put("a")
        world.server.put("b")
        await world.follow()
        world.server.put("c")
        await world.settle()
        # Whoever is told of one object finds all of the list.
        assert seen == [(False, 2), (False, 2), (True, 3)]

    run_story(story)


def test_a_recorded_write_is_visible_at_once_and_reported_once() -> None:
    async def story(world: World) -> None:
        await world.follow()
        world.cache.record_write(view(world.server.put("a")))
        world.cache.record_write(view(world.server.put("a", more="x")))
        assert world.told == ["- -> a@11", "a@11 -> a@12"]
        await world.settle()
        assert world.told == ["- -> a@11", "a@11 -> a@12"]
        assert world.cache.revision == 12

    run_story(story)


def test_an_old_response_neither_reverts_nor_revives_an_object() -> None:
    async def story(world: World) -> None:
        server, cache = world.server, world.cache
        await world.follow()
        first = view(server.put("a"))
        second = view(server.put("a", more="x"))
        await world.settle()
        cache.record_write(first)
        cache.record_write(second)
        assert cache.get("a") == second
        server.delete("a")
        await world.settle()
        cache.record_write(first)
        cache.record_write(second)
        assert cache.get("a") is None
        again = view(server.put("a"))
        cache.record_write(again)
        cache.record_write(second)
        await world.settle()
        assert cache.get("a") == again
        assert world.told == ["- -> a@11", "a@11 -> a@12", "a@12 -> -", "- -> a@14"]

    run_story(story)


def test_a_late_deletion_does_not_remove_the_recreated_object() -> None:
    async def story(world: World) -> None:
        server, cache = world.server, world.cache
        server.put("a")
        await world.follow()
        server.delete("a")
        new = view(server.put("a"))
        cache.record_write(new)
        await world.settle()
        assert cache.get("a") == new
        assert world.told == ["- -> a@11", "a@11 -> a@13"]

    run_story(story)


def test_a_list_requested_before_a_write_does_not_revert_it() -> None:
    async def story(world: World) -> None:
        server, cache = world.server, world.cache
        server.put("a")
        server.put("b")
        listed = encode(
            {"metadata": {"resourceVersion": "12"}, "items": list(server.objects.values())}
        )
        server.fail(CannedResponse(body=listed), verb="list")
        changed, made = view(server.put("a", more="x")), view(server.put("c"))
        cache.record_write(changed)
        cache.record_write(made)
        await world.follow()
        assert (cache.get("a"), cache.get("c")) == (changed, made)
        await world.settle()
        assert world.told == ["- -> a@13", "- -> c@14", "- -> b@12"]

    run_story(story)


def test_a_cache_with_selectors_ignores_writes_of_unknown_objects() -> None:
    async def story(world: World) -> None:
        server, cache = world.server, world.cache
        server.put("a")
        await world.follow()
        other = server.put("b")
        server.watches[0].over = True
        moved = server.put("a", app="elsewhere")
        server.watches[0].over = False
        cache.record_write(view(moved))
        cache.record_write(view(other, revision=99))
        assert world.told == ["- -> a@11", "a@11 -> a@13"]
        # It is not selected any more: the server says so by the revision of that very write.
        server.watches[0].send("DELETED", moved)
        await world.settle()
        assert cache.get("a") is None

    run_story(story, labels="app!=elsewhere")


def test_a_cache_of_a_namespace_ignores_other_namespaces() -> None:
    async def story(world: World) -> None:
        await world.follow()
        for namespace in ("here", "there"):
            thing = world.server.put("a")
            thing["metadata"]["namespace"] = namespace
            world.cache.record_write(view(thing, revision=99))
        assert [each.metadata.key for each in world.cache] == ["here/a"]

    run_story(story, namespace="here")


def test_the_age_is_the_time_since_the_last_proof() -> None:
    async def story(world: World) -> None:
        server, cache, clock = world.server, world.cache, world.clock
        assert cache.age == math.inf
        await world.follow()
        begun = clock.monotonic()
        assert cache.age == 0.0
        await clock.sleep(30.0)
        assert cache.age == 30.0
        server.bookmark()
        await world.settle()
        assert cache.age == pytest.approx(0.001)
        await clock.sleep(20.0)
        server.put("a")
        await world.settle()
        assert cache.age == pytest.approx(0.001)
        # What is told again proves nothing.
        await clock.sleep(20.0)
        server.watches[0].send("MODIFIED", server.objects["a"])
        await world.settle()
        assert cache.age == pytest.approx(20.002)
        assert clock.monotonic() - begun == pytest.approx(70.003)

    run_story(story)


def test_old_events_of_a_resumed_watch_prove_nothing() -> None:
    async def story(world: World) -> None:
        server, cache, clock = world.server, world.cache, world.clock
        await world.follow()
        await world.settle()
        listed = clock.monotonic() - cache.age
        server.end_watches()
        server.put("a")  # while nobody watches
        while cache.get("a") is None:
            await clock.sleep(1.0)
        assert clock.monotonic() - listed == cache.age
        server.bookmark()
        await world.settle()
        assert cache.age == pytest.approx(0.001)
        await clock.sleep(20.0)
        server.put("b")
        await world.settle()
        assert cache.age == pytest.approx(0.001)

    run_story(story)


def test_a_list_proves_the_time_of_its_request() -> None:
    async def story(world: World) -> None:
        world.server.hanging = True
        world.sim.loop.call_later(1.0, setattr, world.server, "hanging", False)
        world.tasks.forever("following", world.cache.run())
        await world.cache.wait_synced()
        assert world.clock.monotonic() >= 30.0  # the first was given up
        asked = world.clock.monotonic()
        assert world.cache.age == 0.0
        await world.clock.sleep(5.0)
        assert world.cache.age == world.clock.monotonic() - asked

    run_story(story)


def test_a_small_kind_is_proven_current_by_one_request() -> None:
    async def story(world: World) -> None:
        server, cache = world.server, world.cache
        server.put("a")
        await world.follow()
        watch = server.watches[0]
        watch.over = True  # a connection that is dead, and does not know it
        server.put("b")
        server.delete("a")
        server.write_other_kind()
        await world.clock.sleep(50.0)
        asked = len(server.asked)
        assert await cache.verify_current(within=5.0)
        assert cache.age == 0.0
        assert (world.names(), cache.revision) == (["b"], 14)
        assert [each.query for each in server.asked[asked:]] == [{"limit": "20"}]
        assert world.told == ["- -> a@11", "a@11 -> -", "- -> b@12"]
        # The connection comes to life again, with what was told otherwise meanwhile.
        watch.over = False
        watch.send("ADDED", {**server.objects["b"]})
        server.put("c")
        await world.settle()
        assert world.names() == ["b", "c"]
        assert world.told[3:] == ["- -> c@15"]
        assert cache.problem == ""

    run_story(story)


def test_a_large_kind_is_proven_current_when_the_watch_catches_up() -> None:
    async def story(world: World) -> None:
        server, cache = world.server, world.cache
        for number in range(30):
            server.put(f"n{number:02}")
        await world.follow()
        await world.clock.sleep(50.0)
        server.write_other_kind()
        world.sim.loop.call_later(0.5, server.put, "n00")
        asked = len(server.asked)
        assert await cache.verify_current(within=5.0)
        assert world.clock.monotonic() == 50.5
        assert len(server.asked) == asked + 1

    run_story(story)


def test_a_quiet_large_kind_is_listed_for_a_proof() -> None:
    async def story(world: World) -> None:
        server, cache = world.server, world.cache
        for number in range(30):
            server.put(f"n{number:02}")
        await world.follow()
        server.watches[0].over = True
        server.put("n00", more="x")
        await world.clock.sleep(50.0)
        assert await cache.verify_current(within=5.0)
        assert cache.age == 0.0
        assert cache.revision == 41
        assert world.told[30:] == ["n00@11 -> n00@41"]
        assert [each.query.get("limit") for each in server.asked] == [
            "500",
            None,
            "20",
            "500",
            None,
        ]

    run_story(story)


def test_a_list_older_than_a_probe_is_ignored() -> None:
    async def story(world: World) -> None:
        server, cache = world.server, world.cache
        server.put("a")
        server.put("b")
        await world.follow()
        server.fail(server.list_response({"limit": "500"}, late=5.0), verb="list")
        server.end_watches(Unavailable("watch", "cut"))
        server.compact()
        server.delete("b")
        server.put("a", more="x")
        server.compact()
        await world.clock.sleep(2.0)
        assert [each.query.get("limit") for each in server.asked[2:]] == [None, "500"]
        assert await cache.verify_current(within=1.0)
        told = ["- -> a@11", "- -> b@12", "b@12 -> -", "a@11 -> a@14"]
        assert world.told == told
        await world.clock.sleep(4.0)
        server.put("c")
        await world.settle()
        assert world.told == [*told, "- -> c@15"]
        assert server.asked[-1].query["resourceVersion"] == "14"
        assert cache.problem == ""

    run_story(story)


@pytest.mark.parametrize("how", ["probe", "list"])
def test_an_object_without_a_revision_does_not_end_the_cache(how: str) -> None:
    async def story(world: World) -> None:
        server, cache = world.server, world.cache
        server.put("a")
        await world.follow()
        revision = server.objects["a"]["metadata"].pop("resourceVersion")
        if how == "probe":
            assert not await cache.verify_current(within=5.0)
        else:
            server.end_watches(Gone("GET /", "expired", code=410))
            await world.clock.sleep(5.0)
        assert "the revision '' is not a number" in cache.problem
        server.objects["a"]["metadata"]["resourceVersion"] = revision
        await world.clock.sleep(60.0)
        assert await cache.verify_current(within=5.0)
        assert cache.problem == ""

    run_story(story)


def test_a_restored_cluster_is_listed_again() -> None:
    async def story(world: World) -> None:
        server, cache = world.server, world.cache
        server.put("a")
        server.put("b")
        await world.follow()
        server.restore(11)
        server.put("a", more="x")  # with a revision that meant something else before
        assert await cache.verify_current(within=20.0)
        assert world.names() == ["a"]
        server.restore(10)
        assert await cache.verify_current(within=20.0)
        assert (world.names(), cache.revision) == ([], 10)

    run_story(story)


@pytest.mark.parametrize("how", ["hangs", "fails", "silent"])
def test_a_failed_proof_names_its_reason(how: str) -> None:
    async def story(world: World) -> None:
        server, cache = world.server, world.cache
        for number in range(30):
            server.put(f"n{number:02}")
        await world.follow()
        await world.clock.sleep(50.0)
        if how == "hangs":
            server.hanging = True
        elif how == "fails":
            server.fail(CannedResponse(403, status_body(403, "Forbidden", "no lists")), verb="list")
        else:
            server.write_other_kind()
            for _ in range(9):
                server.fail(
                    CannedResponse(500, status_body(500, "InternalError", "broken")), verb="watch"
                )

            def refused(request: Any) -> CannedResponse | None:
                whole = request.query.get("limit") == "500"
                return (
                    CannedResponse(500, status_body(500, "InternalError", "broken"))
                    if whole
                    else None
                )

            server.faults = [refused] * 20
        before = world.clock.monotonic()
        assert not await cache.verify_current(within=4.0)
        took = world.clock.monotonic() - before
        assert cache.age == 50.0 + took
        if how == "fails":
            assert took == 0.0
            assert cache.problem == (
                "cannot read the server's current revision: "
                "GET /api/v1/configmaps: no lists; grant it in RBAC"
            )
        else:
            assert took == 4.0
            assert cache.problem != ""
        server.hanging = False
        server.faults = []
        assert await cache.verify_current(within=40.0)
        await world.clock.sleep(40.0)
        assert cache.problem == ""

    run_story(story)


def test_concurrent_proofs() -> None:
    async def story(world: World) -> None:
        server, cache = world.server, world.cache
        for number in range(30):
            server.put(f"n{number:02}")
        await world.follow()
        server.write_other_kind()
        proofs = await asyncio.gather(*(cache.verify_current(within=5.0) for _ in range(5)))
        assert proofs == [True] * 5
        assert sum(each.query.get("limit") == "500" for each in server.asked) <= 3

    run_story(story)


def test_problems_are_readable() -> None:
    async def story(world: World) -> None:
        server, cache = world.server, world.cache
        await world.follow()
        for _ in range(3):
            server.fail(
                CannedResponse(403, status_body(403, "Forbidden", "you may not")), verb="watch"
            )
        server.end_watches()
        await world.clock.sleep(2.0)
        assert cache.problem == "GET /api/v1/configmaps: you may not; grant it in RBAC"
        await world.clock.sleep(60.0)
        assert cache.problem == ""

    run_story(story)


class CountingTransport:
    """A way to a server that knows how many are on it."""

    def __init__(self, server: FakeApiServer) -> None:
        self._server = server
        self.now = 0

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        self.now += 1
        try:
            async with self._server.open(request) as answer:
                await asyncio.sleep(0)
                yield answer
        finally:
            self.now -= 1


@pytest.mark.parametrize("what", ["follow", "list", "prove"])
def test_cancellation_at_any_step_leaves_nothing_behind(what: str) -> None:
    async def main(sim: Sim) -> None:
        for steps in range(100):
            server = FakeApiServer(sim.clock)
            for number in range(30):
                server.put(f"n{number}")
            way = CountingTransport(server)
            kube = Kube(way, manager="test", clock=sim.clock)
            cache = Cache(kube, MAPS, env=sim.env())
            doing = {
                "follow": cache.run,
                "list": lambda kube=kube: kube.list_all(MAPS, limit=5),
                "prove": lambda cache=cache: cache.verify_current(within=5.0),
            }[what]
            task = asyncio.create_task(doing())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled() or what == "list"
            assert way.now == 0
            assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main, seed=1)


def test_a_stopped_cache_can_run_again() -> None:
    async def story(world: World) -> None:
        server, cache = world.server, world.cache
        server.put("a")
        await world.follow()
        await world.tasks.close()
        assert server.watches == []
        server.put("b")
        following = asyncio.create_task(cache.run())
        await world.settle()
        assert world.names() == ["a", "b"]
        following.cancel()
        await asyncio.wait({following})

    run_story(story)


def test_a_view_of_the_metadata_alone_is_enough() -> None:
    async def main(sim: Sim) -> list[str]:
        server = FakeApiServer(sim.clock)
        server.put("a")
        kube = Kube(server, manager="test", clock=sim.clock)
        cache = Cache(kube, CONFIG_MAPS, env=sim.env())
        following = asyncio.create_task(cache.run())
        await cache.wait_synced()
        following.cancel()
        await asyncio.wait({following})
        return [each.metadata.key for each in cache]

    assert run(main, seed=1) == ["a"]
