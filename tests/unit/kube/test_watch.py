"""List and watch: the updates, the requests, and the recovery from each failure."""

import logging
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode

from libs.kube.reflector import Reflector
from libs.kube.resources import Resource
from libs.kube.updates import Bookmark, Changed, Deleted, Listed, Unread, Update
from libs.kube.views import Object
from libs.kube.watch import LineBuffer
from libs.testing.apiserver.faults import Hang, RefuseRequest, SlowBody
from tests.unit.kube.raw_http import RawResponse, ok, refusal
from tests.unit.kube.world import (
    CONFIG_MAP_VIEWS,
    DEAD,
    NAMESPACE,
    ConfigMapView,
    World,
    in_virtual_time,
)

PATH = CONFIG_MAP_VIEWS.path(namespace=NAMESPACE)
ROLLOUTS = Resource(
    group="sluice.dev", version="v1alpha1", plural="rollouts", kind="Rollout", view=Object
)


class Watch:
    """A reflector whose updates are taken one at a time; bookmarks are skipped."""

    def __init__(self, world: World, *, resource: Resource[Any] = CONFIG_MAP_VIEWS) -> None:
        env = world.sim.env("watch")
        self.reflector: Reflector[ConfigMapView] = Reflector(
            world.kube, resource, env=env, namespace=NAMESPACE
        )
        self.updates = self.reflector.updates()

    async def next(self) -> str:
        while isinstance(update := await anext(self.updates), Bookmark):
            pass
        return describe(update)


def describe(update: Update[Any]) -> str:
    match update:
        case Listed():
            names = ",".join(item.metadata.name for item in update.items)
            return f"{'restored' if update.is_restored else 'listed'} {names}".strip()
        case Changed():
            return update.object.metadata.name
        case Unread(each):
            return f"?{each.key}"
        case Deleted():
            return f"-{update.object.metadata.name}"
        case Bookmark():
            return "bookmark"


def event(kind: str, name: str, revision: int) -> bytes:
    metadata = {"name": name, "resourceVersion": str(revision)}
    return encode({"type": kind, "object": {"metadata": metadata}}) + b"\n"


async def watching(world: World, *, resource: Resource[Any] = CONFIG_MAP_VIEWS) -> Watch:
    """Return a watch that is open after a list of `a`."""
    await world.write(a="1")
    watch = Watch(world, resource=resource)
    assert await watch.next() == "listed a"
    return watch


@in_virtual_time()
async def test_a_list_is_followed_by_changes(world: World) -> None:
    watch = await watching(world)
    await world.write(b="1")  # before the watch is open: it is not lost
    assert await watch.next() == "b"
    await world.write(a="2")
    await world.remove("b")
    assert [await watch.next() for _ in range(2)] == ["a", "-b"]
    assert world.requests == {"list": 1, "watch": 1}
    assert world.clock.monotonic() == 0.0
    await watch.updates.aclose()
    assert world.server.open_watches == 0
    await world.write(c="1")
    async with aclosing(watch.reflector.updates()) as resumed:
        assert describe(await anext(resumed)) == "c"
    assert world.requests == {"list": 1, "watch": 2}


@in_virtual_time()
async def test_an_expired_page_restarts_the_list(world: World) -> None:
    first = {"metadata": {"resourceVersion": "7", "continue": "x"}, "items": []}
    world.wire.reply(ok(first), refusal(410, "Expired"))
    await watching(world)
    queries = [request.query for request in world.wire.requests]
    assert [query.get("continue") for query in queries] == [None, "x", None]
    assert all("resourceVersion" not in query for query in queries)


@in_virtual_time()
async def test_selectors_are_sent_with_list_and_watch(world: World) -> None:
    reflector = Reflector(
        world.kube,
        CONFIG_MAP_VIEWS,
        env=world.sim.env("watch"),
        namespace=NAMESPACE,
        labels="app in (a,b)",
        fields="metadata.name=a",
    )
    world.wire.reply(ok({"metadata": {"resourceVersion": "7"}, "items": []}))
    world.wire.reply(RawResponse(content=event("BOOKMARK", "", 8)))
    async with aclosing(reflector.updates()) as updates:
        assert [describe(await anext(updates)) for _ in range(2)] == ["listed", "bookmark"]
    listing, watch = world.wire.requests
    assert listing.path == watch.path == PATH
    for request in (listing, watch):
        assert request.query["labelSelector"] == "app in (a,b)"
        assert request.query["fieldSelector"] == "metadata.name=a"
    assert (watch.query["allowWatchBookmarks"], watch.query["resourceVersion"]) == ("true", "7")
    assert 240 <= int(watch.query["timeoutSeconds"]) <= 360


@in_virtual_time()
async def test_a_watch_that_ends_in_time_resumes(world: World) -> None:
    watch = await watching(world)
    world.sim.loop.call_later(1000.0, world.sim.loop.create_task, world.write(b="1"))
    assert await watch.next() == "b"
    assert world.clock.monotonic() == 1000.0
    assert world.requests["list"] == 1
    assert 3 <= world.requests["watch"] <= 5
    assert watch.reflector.problem == ""


@pytest.mark.parametrize("by", ["response", "event"])
@in_virtual_time()
async def test_a_lost_history_causes_a_list(world: World, by: str) -> None:
    watch = await watching(world)
    if by == "response":
        world.wire.reply(refusal(410, "Expired"), verb="watch")
    else:
        expired = encode({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}})
        world.wire.reply(RawResponse(content=expired + b"\n"), verb="watch")
    await world.write(b="1")
    assert await watch.next() == "listed a,b"
    assert world.requests == {"list": 2, "watch": 1}
    assert world.clock.monotonic() < 1.0


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b'"text"\n',
        b'{"type":"MODIFIED"}\n',
        b'{"type":"NEW","object":{}}\n',
        b'{"type":"ADDED","object":{"metadata":{"name":"\xff","resourceVersion":"12"}}}\n',
        b'{"type":"ADDED","object":{"metadata":{"name":"b","resourceVersion":"x"}}}\n',
        event("BOOKMARK", "", 1),  # older than the list
    ],
)
@in_virtual_time()
async def test_an_unreadable_line_or_an_older_bookmark_causes_a_list(
    world: World, line: bytes
) -> None:
    watch = await watching(world)
    world.wire.reply(RawResponse(content=line), verb="watch")
    await world.write(b="1")
    assert await watch.next() == "listed a,b"
    assert world.requests == {"list": 2, "watch": 1}


def test_a_connection_cut_within_a_line_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time()
    async def cut(world: World) -> None:
        watch = await watching(world)
        half = event("ADDED", "b", world.server.revision + 1)[:-9]
        world.wire.reply(
            RawResponse(content=half), RawResponse(content=half, cut=True), verb="watch"
        )
        await world.write(b="1")
        assert await watch.next() == "b"
        assert world.requests == {"list": 1, "watch": 3}
        assert len({request.query["resourceVersion"] for request in world.wire.requests[1:]}) == 1

    cut()
    assert [record.getMessage() for record in caplog.records] == [
        f"cannot watch: watch {PATH}: the connection was cut in the middle of a line",
        "cannot watch: GET: the connection was cut",
    ]


@in_virtual_time()
async def test_repeated_events_are_ignored(world: World) -> None:
    watch = await watching(world)
    old, new = world.server.revision, world.server.revision + 1
    events = [event("MODIFIED", "a", revision) for revision in (new, new, old, new)]
    events += [event("DELETED", "a", new + 1), event("MODIFIED", "a", new)]
    world.wire.reply(RawResponse(content=b"".join(events)), verb="watch")
    await world.write(b="1", c="1", d="1")  # the first two have the revisions of those events
    assert [await watch.next() for _ in range(3)] == ["a", "-a", "d"]


@in_virtual_time()
async def test_a_silent_connection_is_replaced(world: World) -> None:
    watch = await watching(world)
    world.inject(SlowBody(1, DEAD), "watch")
    world.sim.loop.call_later(100.0, world.sim.loop.create_task, world.write(b="1"))
    assert await watch.next() == "b"
    duration = float(world.wire.requests[1].query["timeoutSeconds"])
    assert duration + 15.0 <= world.clock.monotonic() <= duration + 16.0
    assert world.requests == {"list": 1, "watch": 2}


@in_virtual_time()
async def test_time_spent_by_the_consumer_is_not_silence(world: World) -> None:
    watch = await watching(world)
    await world.write(b="1")
    assert await watch.next() == "b"
    await world.write(c="1")
    await world.clock.sleep(300.0)
    assert await watch.next() == "c"
    assert world.requests == {"list": 1, "watch": 1}


def test_failures_are_retried_with_back_off_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @in_virtual_time()
    async def failures(world: World) -> None:
        world.inject(RefuseRequest(500), "list", times=8)
        watch = await watching(world)
        assert watch.reflector.problem.startswith(f"GET {PATH}: Internal error")
        assert world.clock.monotonic() <= 1 + 2 + 4 + 8 + 16 + 3 * 30
        await world.write(b="1")
        await watch.next()
        assert watch.reflector.problem == ""
        # After a minute of health the back-off starts again.
        before = world.clock.monotonic()
        world.sim.loop.call_later(61.0, lambda: world.server.faults.drop_watches(clean=False))
        world.sim.loop.call_later(61.1, world.sim.loop.create_task, world.write(c="1"))
        assert await watch.next() == "c"
        assert 61.0 <= world.clock.monotonic() - before <= 62.1

    with caplog.at_level(logging.INFO, "sluice.kube"):
        failures()
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [
        "cannot watch",
        f"watching {PATH} again",
        "cannot watch",
        f"watching {PATH} again",
    ]


@pytest.mark.parametrize(("retry_after", "waited"), [(20, 20.0), (86_400, 60.0)])
@in_virtual_time()
async def test_retry_after_is_honoured_up_to_a_limit(
    world: World, retry_after: int, waited: float
) -> None:
    world.inject(RefuseRequest(429, retry_after=retry_after), "list")
    await watching(world)
    assert world.clock.monotonic() == waited


@in_virtual_time()
async def test_an_unserved_custom_kind_is_named(world: World) -> None:
    world.wire.reply(RawResponse(404, b"404 page not found\n"))
    world.wire.reply(ok({"metadata": {"resourceVersion": "7"}}))
    watch = Watch(world, resource=ROLLOUTS)
    assert await watch.next() == "listed"
    assert watch.reflector.problem == (
        f"GET {ROLLOUTS.path(namespace=NAMESPACE)}: the server does not serve rollouts of "
        "sluice.dev/v1alpha1: install the CustomResourceDefinition rollouts.sluice.dev"
    )


@in_virtual_time()
async def test_a_hanging_list_times_out_and_is_retried(world: World) -> None:
    world.inject(Hang(), "list")
    watch = await watching(world)
    assert 30.0 <= world.clock.monotonic() <= 31.0
    assert "no complete response" in watch.reflector.problem
    assert "within 30 s" in watch.reflector.problem


@in_virtual_time()
async def test_a_restored_cluster_is_accepted_at_the_third_list(world: World) -> None:
    await world.write(b="1", c="1")
    watch = Watch(world)
    assert await watch.next() == "listed b,c"
    world.start_server()
    await world.write(a="1")
    world.wire.reply(refusal(410, "Expired"), verb="watch")
    assert await watch.next() == "restored a"
    assert world.requests == {"list": 4, "watch": 1}
    await world.write(c="1")
    assert await watch.next() == "c"


@in_virtual_time()
async def test_a_single_older_list_is_rejected(world: World) -> None:
    watch = await watching(world)
    await world.write(b="1")
    await watch.next()
    world.wire.reply(ok({"metadata": {"resourceVersion": "1"}, "items": []}), verb="list")
    watch.reflector.relist()
    assert await watch.next() == "listed a,b"
    assert world.requests["list"] == 3


@pytest.mark.parametrize("opening", [False, True], ids=["while open", "while opening"])
@in_virtual_time()
async def test_a_requested_list_comes_at_once(world: World, opening: bool) -> None:
    watch = await watching(world)
    if opening:
        world.wire.reply(RawResponse(late=9.0), verb="watch")
    world.sim.loop.call_later(5.0, watch.reflector.relist)
    assert await watch.next() == "listed a"
    assert world.clock.monotonic() == 5.0
    assert world.requests == {"list": 2, "watch": 1}
    assert watch.reflector.problem == ""


@in_virtual_time()
async def test_a_list_requested_before_the_watch_answers(world: World) -> None:
    watch = await watching(world)
    world.inject(Hang(), "watch")
    world.sim.loop.call_later(5.0, watch.reflector.relist)
    assert await watch.next() == "listed a"
    assert world.requests == {"list": 2, "watch": 1}


@given(
    lines=st.lists(st.binary(max_size=8).map(lambda line: line.replace(b"\n", b"")), max_size=8),
    partial=st.binary(max_size=3).map(lambda line: line.replace(b"\n", b"")),
    cuts=st.lists(st.integers(0, 80)),
)
def test_lines_do_not_depend_on_chunks(lines: list[bytes], partial: bytes, cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines) + partial
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    buffer = LineBuffer()
    received = [line for start, end in pairwise(edges) for line in buffer.feed(data[start:end])]
    assert received == [line for line in lines if line]
    assert buffer.has_partial == bool(partial)
