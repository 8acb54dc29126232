"""List and watch: what it tells, what it asks for, and that no trouble ends it."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, cast

import pytest

from libs.kube.client import Kube
from libs.kube.errors import Unavailable
from libs.kube.reflector import Bookmark, Changed, Deleted, Listed, Reflector, Update
from libs.kube.resources import CONFIG_MAPS, Resource
from libs.kube.views import Object
from libs.testing.simulation import Sim, run
from tests.unit.kube.fake_api_server import CannedResponse, FakeApiServer, encode, status_body

Story = Callable[["World"], Awaitable[None]]

ROLLOUTS = Resource(
    group="sluice.dev", version="v1alpha1", plural="rollouts", kind="Rollout", view=Object
)


class World:
    """A server, and a watch of it whose updates are taken one by one."""

    def __init__(self, sim: Sim, *, resource: Resource[Any] = CONFIG_MAPS, **part: str) -> None:
        self.sim = sim
        self.clock = sim.clock
        self.server = FakeApiServer(sim.clock)
        kube = Kube(self.server, manager="test", clock=sim.clock)
        self.watch = Reflector(kube, resource, env=sim.env("watch"), **part)
        self._updates = self.watch.updates()

    async def next(self) -> Update[Object]:
        return await anext(self._updates)

    async def take_updates(self) -> list[str]:
        """Up to the next bookmark, in short."""
        words: list[str] = []
        while not isinstance(update := await self.next(), Bookmark):
            words.append(short(update))
        return words

    async def close(self) -> None:
        await self._updates.aclose()

    def verbs(self) -> list[str]:
        return ["watch" if "watch" in each.query else "list" for each in self.server.asked]


def short(update: Update[Any]) -> str:
    match update:
        case Listed():
            names = ",".join(item.metadata.name for item in update.items)
            return f"{'restored' if update.taken_back else 'listed'} {names}@{update.revision}"
        case Changed():
            return f"{update.object.metadata.name}@{update.revision}"
        case Deleted():
            return f"-{update.object.metadata.name}@{update.revision}"
        case Bookmark():
            return f"@{update.revision}"


def run_story(story: Story, *, seed: int = 1, **how: Any) -> None:
    async def main(sim: Sim) -> None:
        world = World(sim, **how)
        try:
            await story(world)
        finally:
            await world.close()

    run(main, seed=seed)


def test_a_list_is_followed_by_changes() -> None:
    async def story(world: World) -> None:
        server = world.server
        server.put("a")
        assert short(await world.next()) == "listed a@11"
        server.put("b")  # before the watch is open: it is not lost
        assert short(await world.next()) == "b@12"
        server.put("a", more="x")
        server.delete("b")
        server.bookmark()
        assert await world.take_updates() == ["a@13", "-b@14"]
        assert world.verbs() == ["list", "watch"]
        assert world.clock.monotonic() == 0.0

    run_story(story)


def test_a_list_is_read_in_pages_of_one_revision() -> None:
    async def story(world: World) -> None:
        for number in range(1001):
            world.server.put(f"n{number:04}")
        listed = cast(Listed[Object], await world.next())
        assert len(listed.items) == 1001
        assert listed.revision == 1011
        asked = [each.query for each in world.server.asked]
        assert [query["limit"] for query in asked] == ["500"] * 3
        assert [query.get("continue") for query in asked] == [None, "1011/n0499", "1011/n0999"]
        assert all("resourceVersion" not in query for query in asked)

    run_story(story)


def test_an_expired_page_restarts_the_list() -> None:
    async def story(world: World) -> None:
        server = world.server
        for number in range(501):
            server.put(f"n{number:03}")

        def expired(request: Any) -> CannedResponse | None:
            return (
                CannedResponse(410, status_body(410, "Expired"))
                if "continue" in request.query
                else None
            )

        server.faults = [expired]
        listed = cast(Listed[Object], await world.next())
        assert len(listed.items) == 501
        assert world.verbs() == ["list"] * 4

    run_story(story)


def test_selectors_are_sent_with_list_and_watch() -> None:
    async def story(world: World) -> None:
        world.server.put("a")
        await world.next()
        world.server.put("b")
        await world.next()
        listing, watching = (each.query for each in world.server.asked)
        for query in (listing, watching):
            assert query["labelSelector"] == "app in (a,b)"
            assert query["fieldSelector"] == "spec.nodeName=n1"
        assert watching["allowWatchBookmarks"] == "true"
        assert 240 <= int(watching["timeoutSeconds"]) <= 360
        assert watching["resourceVersion"] == "11"
        assert {each.path for each in world.server.asked} == {"/api/v1/namespaces/x/configmaps"}

    run_story(story, labels="app in (a,b)", fields="spec.nodeName=n1", namespace="x")


def test_a_watch_that_ends_in_time_resumes() -> None:
    async def story(world: World) -> None:
        server = world.server
        server.put("a")
        await world.next()
        server.put("b")
        await world.next()
        first = world.clock.monotonic()
        world.sim.loop.call_later(1000.0, server.put, "c")
        assert short(await world.next()) == "c@13"
        assert world.clock.monotonic() == first + 1000.0
        assert world.verbs().count("list") == 1
        assert 3 <= world.verbs().count("watch") <= 5
        assert {each.query["resourceVersion"] for each in server.asked[2:]} == {"12"}
        assert world.watch.problem == ""

    run_story(story)


@pytest.mark.parametrize("by", ["answer", "event"])
def test_a_lost_history_causes_a_list(by: str) -> None:
    async def story(world: World) -> None:
        server = world.server
        server.put("a")
        await world.next()
        if by == "answer":
            server.put("b")
            server.compact()
        else:
            gone = encode({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}})
            server.fail(CannedResponse(body=gone + b"\n"), verb="watch")
            server.put("b")
        assert short(await world.next()) == "listed a,b@12"
        assert world.verbs() == ["list", "watch", "list"]
        assert world.clock.monotonic() < 1.0

    run_story(story)


@pytest.mark.parametrize(
    "line",
    [b"nonsense\n", b'"text"\n', b'{"type":"MODIFIED"}\n', b'{"type":"NEW","object":{}}\n',
     b'{"type":"ADDED","object":{"metadata":{"name":"\xff","resourceVersion":"12"}}}\n',
     b'{"type":"ADDED","object":{"metadata":{"name":"b","resourceVersion":"x"}}}\n'],
)  # fmt: skip
def test_an_unreadable_line_causes_a_list(line: bytes) -> None:
    async def story(world: World) -> None:
        server = world.server
        server.put("a")
        await world.next()
        server.fail(CannedResponse(body=line), verb="watch")
        server.put("b")
        assert short(await world.next()) == "listed a,b@12"
        assert world.verbs() == ["list", "watch", "list"]

    run_story(story)


def test_a_connection_cut_within_a_line_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(world: World) -> None:
        server = world.server
        server.put("a")
        await world.next()
        whole = server.put("b")
        half = encode({"type": "ADDED", "object": whole})[:-9]
        for answer in (CannedResponse(body=half), CannedResponse(body=half, cut=True)):
            server.fail(answer, verb="watch")
        assert short(await world.next()) == "b@12"
        assert world.verbs() == ["list", "watch", "watch", "watch"]
        assert [each.query["resourceVersion"] for each in server.asked[1:]] == ["11"] * 3

    run_story(story)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "cannot watch: watch /api/v1/configmaps: the connection was cut in the middle of a line",
        "cannot watch: GET: the connection was cut",
    ]


def test_repeated_events_are_ignored() -> None:
    async def story(world: World) -> None:
        server = world.server
        old = server.put("a")
        await world.next()
        new = server.put("a", more="x")
        await world.next()
        watch = server.watches[0]
        for thing in (new, old, new):
            watch.send("MODIFIED", thing)
        server.delete("a")
        watch.send("MODIFIED", new)
        server.bookmark()
        assert await world.take_updates() == ["-a@13"]

    run_story(story)


def test_a_silent_connection_is_replaced() -> None:
    async def story(world: World) -> None:
        server = world.server
        await world.next()
        server.put("a")
        await world.next()
        begun = world.clock.monotonic()
        life = float(server.asked[-1].query["timeoutSeconds"])
        dead = server.watches[0]
        dead.over = True  # nothing reaches us any more, and no end
        dead.end = lambda error=None: None
        world.sim.loop.call_later(100.0, server.put, "b")
        assert short(await world.next()) == "b@12"
        waited = world.clock.monotonic() - begun
        assert life + 15.0 <= waited <= life + 16.0
        assert world.verbs() == ["list", "watch", "watch"]

    run_story(story)


def test_time_spent_by_the_consumer_is_not_silence() -> None:
    async def story(world: World) -> None:
        server = world.server
        await world.next()
        server.put("a")
        await world.next()
        server.put("b")
        await world.clock.sleep(300.0)
        assert world.verbs() == ["list", "watch"]
        assert short(await world.next()) == "b@12"

    run_story(story)


def test_failures_are_retried_with_back_off_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(world: World) -> None:
        server = world.server
        for _ in range(8):
            server.fail(
                CannedResponse(503, status_body(503, "ServiceUnavailable", "not now")), verb="list"
            )
        assert short(await world.next()) == "listed @10"
        assert world.watch.problem == f"GET {CONFIG_MAPS.path()}: not now"
        assert world.clock.monotonic() <= 1 + 2 + 4 + 8 + 16 + 3 * 30
        server.put("a")
        await world.next()
        assert world.watch.problem == ""

    with caplog.at_level(logging.INFO, "sluice.kube"):
        run_story(story)
    assert [record.getMessage() for record in caplog.records] == [
        "cannot watch: GET /api/v1/configmaps: not now",
        "watching /api/v1/configmaps again",
    ]


def test_a_minute_of_health_resets_the_back_off() -> None:
    async def story(world: World) -> None:
        server = world.server
        for _ in range(10):
            server.fail(CannedResponse(503, status_body(503, "ServiceUnavailable")), verb="list")
        await world.next()
        server.put("a")
        await world.next()
        world.sim.loop.call_later(61.0, server.end_watches, Unavailable("watch", "cut"))
        world.sim.loop.call_later(61.0, server.put, "b")
        before = world.clock.monotonic()
        assert short(await world.next()) == "b@12"
        assert 61.0 <= world.clock.monotonic() - before <= 62.0

    run_story(story)


@pytest.mark.parametrize(
    ("code", "reason", "said"),
    [(401, "Unauthorized", "log in again"), (403, "Forbidden", "grant it in RBAC")],
)
def test_a_forbidden_watch_is_retried_with_a_reason(code: int, reason: str, said: str) -> None:
    async def story(world: World) -> None:
        server = world.server
        for _ in range(3):
            server.fail(
                CannedResponse(code, status_body(code, reason, "you may not")), verb="watch"
            )
        await world.next()
        server.put("a")
        assert short(await world.next()) == "a@11"
        assert world.verbs() == ["list", "watch", "watch", "watch", "watch"]
        assert world.watch.problem == ""

    async def seen(world: World) -> None:
        world.server.fail(
            CannedResponse(code, status_body(code, reason, "you may not")), verb="list"
        )
        await world.next()
        assert world.watch.problem.startswith(f"GET {CONFIG_MAPS.path()}: you may not")
        assert said in world.watch.problem

    run_story(story)
    run_story(seen)


@pytest.mark.parametrize(("asked", "waited"), [(20, 20.0), (86_400, 60.0)])
def test_retry_after_is_honoured_up_to_a_limit(asked: int, waited: float) -> None:
    async def story(world: World) -> None:
        body = status_body(429, "TooManyRequests", retryAfterSeconds=asked)
        world.server.fail(CannedResponse(429, body), verb="list")
        await world.next()
        assert world.clock.monotonic() == waited

    run_story(story)


def test_an_unserved_custom_kind_is_named() -> None:
    async def story(world: World) -> None:
        server = world.server
        server.fail(CannedResponse(404, b"404 page not found\n"), verb="list")
        assert short(await world.next()) == "listed @10"
        assert world.watch.problem == (
            "GET /apis/sluice.dev/v1alpha1/rollouts: the server does not serve rollouts of "
            "sluice.dev/v1alpha1: install the CustomResourceDefinition rollouts.sluice.dev"
        )

    run_story(story, resource=ROLLOUTS)


def test_a_hanging_list_times_out_and_is_retried() -> None:
    async def story(world: World) -> None:
        server = world.server
        server.hanging = True
        world.sim.loop.call_later(40.0, setattr, server, "hanging", False)
        assert short(await world.next()) == "listed @10"
        assert 60.0 <= world.clock.monotonic() <= 63.0
        assert "no complete response" in world.watch.problem
        assert "within 30 s" in world.watch.problem

    run_story(story)


def test_a_restored_cluster_is_accepted_at_the_third_list() -> None:
    async def story(world: World) -> None:
        server = world.server
        server.put("a")
        server.put("b")
        assert short(await world.next()) == "listed a,b@12"
        server.restore(11)
        server.fail(CannedResponse(410, status_body(410, "Expired")), verb="watch")
        assert short(await world.next()) == "restored a@11"
        assert world.verbs() == ["list", "watch", "list", "list", "list"]
        server.put("c")
        assert short(await world.next()) == "c@12"

    run_story(story)


def test_a_single_older_list_is_rejected() -> None:
    async def story(world: World) -> None:
        server = world.server
        server.put("a")
        await world.next()
        server.put("b")
        await world.next()
        old = encode({"metadata": {"resourceVersion": "10"}, "items": []})
        server.fail(CannedResponse(body=old), verb="list")
        world.watch.relist()
        assert short(await world.next()) == "listed a,b@12"

    run_story(story)


def test_an_older_bookmark_causes_a_list() -> None:
    async def story(world: World) -> None:
        server = world.server
        server.put("a")
        await world.next()
        server.put("b")
        await world.next()
        server.watches[0].send("BOOKMARK", {"metadata": {"resourceVersion": "5"}})
        assert short(await world.next()) == "listed a,b@12"

    run_story(story)


def test_a_requested_list_comes_at_once() -> None:
    async def story(world: World) -> None:
        server = world.server
        await world.next()
        server.put("a")
        await world.next()
        world.sim.loop.call_later(5.0, world.watch.relist)
        assert short(await world.next()) == "listed a@11"
        assert world.clock.monotonic() == 5.0
        assert world.watch.problem == ""

    run_story(story)


def test_a_list_requested_while_the_watch_opens() -> None:
    async def story(world: World) -> None:
        server = world.server
        await world.next()
        server.hanging = True
        world.sim.loop.call_later(5.0, world.watch.relist)
        world.sim.loop.call_later(9.0, setattr, server, "hanging", False)
        assert short(await world.next()) == "listed @10"
        assert world.verbs() == ["list", "watch", "list"]

    run_story(story)


def test_a_closed_watch_leaves_nothing_behind_and_can_resume() -> None:
    async def story(world: World) -> None:
        server = world.server
        await world.next()
        server.put("a")
        await world.next()
        await world.close()
        assert server.watches == []
        server.put("b")
        async with aclosing(world.watch.updates()) as updates:
            assert short(await anext(updates)) == "b@12"
        assert world.verbs() == ["list", "watch", "watch"]

    run_story(story)
