"""Watches in virtual time: when bookmarks are sent, and how a watch ends."""

import asyncio

import pytest

from libs.kube import resources
from libs.kube.errors import Unavailable
from libs.testing.apiserver import watches
from libs.testing.apiserver.kinds.kind import ResourceKinds
from libs.testing.apiserver.store import Selection, StoredChange, StoredObject
from libs.testing.apiserver.watches import ServerWatch, WatchEvent
from tests.component.testing.apiserver.world import (
    NODES,
    ApiServerWorld,
    describe_event,
    in_world,
    watch_events,
)


@in_world
async def test_a_restart_cuts_watches_keeps_objects_and_forgets_history(
    world: ApiServerWorld,
) -> None:
    await world.node("n1")
    query = {"watch": "1", "resourceVersion": str(world.server.revision)}
    await world.node("n2")
    async with world.kube.stream(NODES, query=query) as response:
        stream = watch_events(response)
        assert describe_event(await anext(stream)) == ("ADDED", "n2")
        await world.server.restart()
        with pytest.raises(Unavailable):
            await anext(stream)
    assert (await world.kube.get(resources.NODES, "n1")).metadata.name == "n1"
    async with world.kube.stream(NODES, query=query) as response:
        assert (await anext(watch_events(response)))["object"]["code"] == 410


def watch() -> ServerWatch:
    kind = ResourceKinds().by_path("", "v1", "configmaps")
    assert kind is not None
    everything = Selection(kind, namespace="", name="", query={})
    return ServerWatch(kind, everything, user="ann", after=0)


def publish(watch: ServerWatch, *revisions: int) -> None:
    for revision in revisions:
        stored = StoredObject(
            namespace="default",
            name=f"c{revision}",
            uid="u",
            revision=revision,
            raw=b"%d" % revision,
            labels={},
            fields=(),
        )
        change = StoredChange(revision=revision, before=None, after=stored)
        watch.offer(change, WatchEvent(change))


async def delivered(watch: ServerWatch) -> list[str]:
    """Return everything up to the end; bookmarks are in brackets."""
    found: list[str] = []
    while (item := await watch.next()) is not None:
        if isinstance(item, int):
            found.append(f"[{item}]")
        else:
            found += [event.raw(event_type).decode() for event_type, event in item]
    return found


async def test_a_bookmark_keeps_its_place_among_the_events() -> None:
    queue = watch()
    publish(queue, 1, 2)
    queue.add_bookmark(2)
    publish(queue, 5)
    queue.add_bookmark(7)
    queue.add_bookmark(9)
    queue.end()
    assert await delivered(queue) == ["1", "2", "[2]", "5", "[9]"]


async def test_no_bookmark_follows_an_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "BUFFER", 3)
    queue = watch()
    publish(queue, 1, 2, 3, 4, 5)
    queue.add_bookmark(5)
    assert await delivered(queue) == ["1", "2", "3"]


async def test_a_dropped_watch_loses_its_bookmarks() -> None:
    queue = watch()
    queue.remaining_events, queue.ends_clean = 2, True
    publish(queue, 1, 2, 3)
    queue.add_bookmark(3)
    assert await delivered(queue) == ["1", "2"]


@in_world
async def test_bookmarks_are_sent_each_minute_and_before_the_end_if_something_was_written(
    world: ApiServerWorld,
) -> None:
    query = {
        "watch": "1",
        "resourceVersion": str(world.server.revision),
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "150",
    }
    received: list[tuple[float, str]] = []

    async def listen() -> None:
        async with world.kube.stream(NODES, query=query) as response:
            received.extend(
                [
                    (world.sim.clock.monotonic(), event["type"])
                    async for event in watch_events(response)
                ]
            )

    listening = asyncio.create_task(listen())
    await world.sim.clock.sleep(61)
    await world.config("elsewhere")
    await listening
    assert received == [(120.0, "BOOKMARK"), (148.0, "BOOKMARK")]
