"""Lists and watches: one revision for all pages, every change once, and what is forgotten."""

import asyncio

import pytest

from libs.kube import resources
from libs.kube.errors import Gone, Unavailable
from tests.component.testing.apiserver.world import (
    CONFIG,
    MERGE,
    NODES,
    ApiServerWorld,
    JsonObject,
    describe_event,
    events,
    run_world,
)


def test_pages_are_of_one_revision_whatever_happens_between_them() -> None:
    async def main(town: ApiServerWorld) -> None:
        for name in "abcde":
            await town.config(name)
        kube, kind = town.kube, resources.CONFIG_MAPS
        first = await kube.list_page(kind, namespace="default", limit=2)
        at = town.server.revision
        await town.ask("DELETE", f"{CONFIG}/c")
        await town.ask("PATCH", f"{CONFIG}/d", {"data": {"k": "v"}}, content_type=MERGE)
        await town.config("bb")
        second = await kube.list_page(
            kind, namespace="default", limit=2, continue_token=first.continue_token
        )
        third = await kube.list_page(
            kind, namespace="default", limit=2, continue_token=second.continue_token
        )
        names = [each.metadata.name for page in (first, second, third) for each in page.items]
        assert names == ["a", "b", "c", "d", "e"]
        assert {page.resource_version for page in (first, second, third)} == {str(at)}
        assert third.continue_token == ""
        _, whole = await town.ask("GET", CONFIG, limit="2")
        assert whole["metadata"]["remainingItemCount"] == 3
        _, exact = await town.ask(
            "GET", CONFIG, resourceVersion=str(at), resourceVersionMatch="Exact"
        )
        assert len(exact["items"]) == 5

    run_world(main)


def test_a_page_of_what_is_forgotten_is_gone_and_the_rest_can_be_had_as_of_now() -> None:
    async def main(town: ApiServerWorld) -> None:
        for name in "abc":
            await town.config(name)
        first = await town.kube.list_page(resources.CONFIG_MAPS, namespace="default", limit=2)
        await town.config("d")
        await town.server.compact()
        with pytest.raises(Gone):
            await town.kube.list_page(
                resources.CONFIG_MAPS, namespace="default", continue_token=first.continue_token
            )
        code, refused = await town.ask("GET", CONFIG, **{"continue": first.continue_token})
        assert (code, refused["reason"]) == (410, "Expired")
        rest = refused["metadata"]["continue"]
        now = await town.kube.list_page(
            resources.CONFIG_MAPS, namespace="default", continue_token=rest
        )
        assert [each.metadata.name for each in now.items] == ["c", "d"]
        assert now.resource_version == str(town.server.revision)

    run_world(main)


def test_selectors_take_labels_and_the_fields_of_a_kind() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.pod("p1", node="n1")
        await town.pod("p2", node="n2")
        await town.pod("p3", node="n1", phase="Failed")

        async def names(**query: str) -> list[str]:
            _, listed = await town.ask("GET", "/api/v1/pods", **query)
            return [each["metadata"]["name"] for each in listed["items"]]

        assert await names(fieldSelector="spec.nodeName=n1") == ["p1", "p3"]
        assert await names(fieldSelector="spec.nodeName=n1,status.phase!=Failed") == ["p1"]
        assert await names(fieldSelector="metadata.name=p2", labelSelector="app=a") == ["p2"]
        assert await names(labelSelector="app notin (a)") == []
        code, refused = await town.ask("GET", "/api/v1/pods", fieldSelector="spec.image=x")
        assert (code, refused["message"]) == (400, "field label not supported: spec.image")

    run_world(main)


def test_a_list_names_a_future_revision_in_vain() -> None:
    async def main(town: ApiServerWorld) -> None:
        code, refused = await town.ask("GET", NODES, resourceVersion="999")
        assert (code, refused["reason"], town.sim.clock.monotonic()) == (504, "Timeout", 3.0)
        assert refused["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"

    run_world(main)


def test_a_watch_tells_of_a_selection_who_comes_changes_and_goes() -> None:
    async def main(town: ApiServerWorld) -> None:
        start = town.server.revision
        await town.config("a", x="1")
        await town.config("b", x="2")
        for labels in ({"x": "2"}, {"x": "1"}, {"x": "1", "y": "1"}):
            await town.ask(
                "PATCH", f"{CONFIG}/a", {"metadata": {"labels": labels}}, content_type=MERGE
            )
        await town.ask("DELETE", f"{CONFIG}/a")
        await town.ask("DELETE", f"{CONFIG}/b")
        query = {
            "watch": "1",
            "resourceVersion": str(start),
            "labelSelector": "x=1",
            "timeoutSeconds": "10",
        }
        async with town.kube.stream(CONFIG, query=query) as answer:
            heard = [event async for event in events(answer)]
        assert [event["type"] for event in heard] == [
            "ADDED",
            "DELETED",
            "ADDED",
            "MODIFIED",
            "DELETED",
        ]
        revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in heard]
        assert revisions == [start + each for each in (1, 3, 4, 5, 6)]
        assert heard[1]["object"]["metadata"]["labels"] == {"x": "1"}
        assert town.sim.clock.monotonic() == 10.0
        assert town.server.open_watches == 0

    run_world(main)


def test_what_is_there_comes_first_and_then_what_happens() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.node("n1")
        await town.node("n2")
        query = {
            "watch": "1",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "5",
        }
        async with town.kube.stream(NODES, query=query) as answer:
            stream = events(answer)
            first = [await anext(stream) for _ in range(3)]
            await town.node("n3")
            later = [event async for event in stream]
        assert [describe_event(event) for event in first] == [
            ("ADDED", "n1"),
            ("ADDED", "n2"),
            ("BOOKMARK", ""),
        ]
        ending = first[2]["object"]["metadata"]
        assert ending["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert [describe_event(event) for event in later] == [("ADDED", "n3"), ("BOOKMARK", "")]

    run_world(main)


def test_bookmarks_come_each_minute_and_before_the_end_when_something_happened() -> None:
    async def main(town: ApiServerWorld) -> list[tuple[float, str]]:
        at = str(town.server.revision)
        query = {
            "watch": "1",
            "resourceVersion": at,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "150",
        }
        heard: list[tuple[float, str]] = []

        async def listen() -> None:
            async with town.kube.stream(NODES, query=query) as answer:
                heard.extend(
                    [(town.sim.clock.monotonic(), each["type"]) async for each in events(answer)]
                )

        listening = asyncio.create_task(listen())
        await town.sim.clock.sleep(61)
        await town.config("elsewhere")
        await listening
        return heard

    assert run_world(main) == [(120.0, "BOOKMARK"), (148.0, "BOOKMARK")]


def test_a_watch_from_what_is_forgotten_is_told_so_in_its_stream() -> None:
    async def main(town: ApiServerWorld) -> JsonObject:
        for number in range(6):
            await town.node(f"n{number}")
        query = {"watch": "1", "resourceVersion": "5"}
        async with town.kube.stream(NODES, query=query) as answer:
            assert answer.status == 200
            (event,) = [event async for event in events(answer)]
        query = {"watch": "1", "resourceVersion": str(town.server.revision - 4)}
        async with town.kube.stream(NODES, query={**query, "timeoutSeconds": "1"}) as answer:
            assert len([event async for event in events(answer)]) == 4
        return event

    event = run_world(main, cache_reads=4)
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"] == "too old resource version: 5 (7)"


def test_who_does_not_listen_is_ended_with_what_he_was_told_until_then() -> None:
    async def main(town: ApiServerWorld) -> int:
        query = {"watch": "1", "resourceVersion": str(town.server.revision)}
        async with town.kube.stream(CONFIG, query=query) as answer:
            await town.config("a")
            for number in range(5_000):
                body = {"data": {"n": str(number)}}
                await town.ask("PATCH", f"{CONFIG}/a", body, content_type=MERGE)
            return len([event async for event in events(answer)])

    assert run_world(main, cache_reads=10) == 4_096


def test_a_restart_cuts_watches_keeps_objects_and_forgets_how_they_came() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.node("n1")
        at = str(town.server.revision)
        await town.node("n2")
        query = {"watch": "1", "resourceVersion": at}
        async with town.kube.stream(NODES, query=query) as answer:
            stream = events(answer)
            assert describe_event(await anext(stream)) == ("ADDED", "n2")
            await town.server.restart()
            with pytest.raises(Unavailable):
                await anext(stream)
        assert (await town.kube.get(resources.NODES, "n1")).metadata.name == "n1"
        async with town.kube.stream(NODES, query=query) as answer:
            assert (await anext(events(answer)))["type"] == "ERROR"
        await town.server.stop()
        with pytest.raises(Unavailable):
            await town.kube.get(resources.NODES, "n1")
        await town.server.start()
        assert (await town.kube.get(resources.NODES, "n2")).metadata.name == "n2"

    run_world(main)


def test_many_are_deleted_at_once_and_each_is_journalled() -> None:
    async def main(town: ApiServerWorld) -> None:
        for name in "abc":
            await town.config(name, x="1" if name != "b" else "2")
        code, listed = await town.ask("DELETE", CONFIG, labelSelector="x=1")
        assert code == 200
        assert [each["metadata"]["name"] for each in listed["items"]] == ["a", "c"]
        _, left = await town.ask("GET", CONFIG)
        assert [each["metadata"]["name"] for each in left["items"]] == ["b"]
        deletes = [each.name for each in town.server.journal.revisions if each.verb == "delete"]
        assert deletes == ["a", "c"]

    run_world(main)
