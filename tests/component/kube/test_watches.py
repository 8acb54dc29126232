"""Watches: their start, their events, and their end."""

import pytest

from libs.kube.errors import Unavailable
from libs.kube.resources import CONFIG_MAPS, PODS
from tests.builders.objects import config_map
from tests.component.kube.builders import pod
from tests.component.kube.raw_requests import patch, raw_watch, summarize
from tests.component.kube.sandbox import Kube, Sandbox

ALL = {"suite": "watches"}
MINE = "suite=watches"
"""Selects the test's own objects: controllers create others in every namespace."""


async def current_revision(sandbox: Sandbox) -> str:
    page = await sandbox.kube().list_page(CONFIG_MAPS)
    return page.resource_version


@pytest.fixture
def path(sandbox: Sandbox) -> str:
    return CONFIG_MAPS.path(namespace=sandbox.namespace)


async def create(sandbox: Sandbox, name: str, **labels: str) -> str:
    """Create an object; return its revision."""
    created = await sandbox.kube().create(CONFIG_MAPS, config_map(name, labels=ALL | labels))
    return created.metadata.resource_version


async def change(sandbox: Sandbox, name: str, what: object) -> str:
    changed = await patch(sandbox.kube(), CONFIG_MAPS, name, what)
    return changed["metadata"]["resourceVersion"]


async def delete(sandbox: Sandbox, name: str) -> None:
    path = CONFIG_MAPS.path(namespace=sandbox.namespace, name=name)
    await sandbox.kube().request("DELETE", path)


async def test_a_watch_reports_changes_after_its_revision(
    sandbox: Sandbox, kube: Kube, path: str
) -> None:
    await create(sandbox, "before")
    begin = await current_revision(sandbox)
    async with raw_watch(kube, path, resourceVersion=begin, labelSelector=MINE) as watched:
        created = await create(sandbox, "a")
        changed = await change(sandbox, "a", {"data": {"k": "1"}})
        await delete(sandbox, "a")

        events = await watched.take(3)

    assert events[:2] == [("ADDED", "a", created), ("MODIFIED", "a", changed)]
    kind, name, revision = events[2]
    assert (kind, name) == ("DELETED", "a")
    assert int(revision) > int(changed)


async def test_a_write_without_a_change_sends_no_event(
    sandbox: Sandbox, kube: Kube, path: str
) -> None:
    begin = await create(sandbox, "a")
    async with raw_watch(kube, path, resourceVersion=begin, labelSelector=MINE) as watched:
        await change(sandbox, "a", {"metadata": {"labels": ALL}})
        changed = await change(sandbox, "a", {"data": {"k": "1"}})

        assert await watched.take(1) == [("MODIFIED", "a", changed)]


async def test_a_deleted_event_has_the_last_state(sandbox: Sandbox, kube: Kube, path: str) -> None:
    await create(sandbox, "a")
    begin = await change(sandbox, "a", {"data": {"last": "1"}})
    await delete(sandbox, "a")
    after = await create(sandbox, "b")

    async with raw_watch(kube, path, resourceVersion=begin, labelSelector=MINE) as watched:
        deleted = await watched.next()

    assert deleted["type"] == "DELETED"
    assert deleted["object"]["data"] == {"last": "1"}
    assert int(begin) < int(deleted["object"]["metadata"]["resourceVersion"]) < int(after)


async def test_a_delete_held_by_a_finalizer_is_a_modification_first(
    sandbox: Sandbox, kube: Kube, path: str
) -> None:
    held = config_map("a", labels=ALL, finalizers=["sluice.dev/held"])
    created = await kube.create(CONFIG_MAPS, held)
    begin = created.metadata.resource_version
    await delete(sandbox, "a")
    await change(sandbox, "a", {"metadata": {"finalizers": None}})

    async with raw_watch(kube, path, resourceVersion=begin, labelSelector=MINE) as watched:
        dying, deleted = await watched.next(), await watched.next()

    assert (dying["type"], deleted["type"]) == ("MODIFIED", "DELETED")
    assert dying["object"]["metadata"]["deletionTimestamp"]
    assert dying["object"]["metadata"]["finalizers"] == ["sluice.dev/held"]
    assert deleted["object"]["metadata"]["finalizers"] == ["sluice.dev/held"]  # the state before


# Selections


async def test_an_object_enters_and_leaves_a_selection(
    sandbox: Sandbox, kube: Kube, path: str
) -> None:
    """Leaving is a DELETED event with the former state, at the revision of the change."""
    begin = await create(sandbox, "a")
    async with raw_watch(kube, path, resourceVersion=begin, labelSelector="in=yes") as watched:
        await change(sandbox, "a", {"data": {"seen": "no"}})
        entered = await change(sandbox, "a", {"metadata": {"labels": {"in": "yes"}}})
        changed = await change(sandbox, "a", {"data": {"seen": "yes"}})
        left = await change(
            sandbox, "a", {"metadata": {"labels": {"in": "no"}}, "data": {"seen": "late"}}
        )
        again = await change(sandbox, "a", {"metadata": {"labels": {"in": "yes"}}})
        events = [await watched.next() for _ in range(4)]

    assert [summarize(event) for event in events] == [
        ("ADDED", "a", entered),
        ("MODIFIED", "a", changed),
        ("DELETED", "a", left),
        ("ADDED", "a", again),
    ]
    assert events[2]["object"]["metadata"]["labels"]["in"] == "yes"
    assert events[2]["object"]["data"] == {"seen": "yes"}


async def test_pods_of_a_node_can_be_watched(sandbox: Sandbox, kube: Kube) -> None:
    node = await sandbox.node("n")
    begin = await current_revision(sandbox)
    pods = PODS.path()
    unbound, bound = "spec.nodeName=", f"spec.nodeName={node}"
    async with (
        raw_watch(kube, pods, resourceVersion=begin, fieldSelector=unbound) as waiting,
        raw_watch(kube, pods, resourceVersion=begin, fieldSelector=bound) as placed,
    ):
        created = await kube.create(PODS, pod("a"))
        binding = {"target": {"kind": "Node", "name": node}, "metadata": {"name": "a"}}
        path = PODS.path(namespace=sandbox.namespace, name="a", subresource="binding")
        await kube.request("POST", path, body=binding)
        now_bound = await kube.get(PODS, "a")

        first = created.metadata.resource_version
        second = now_bound.metadata.resource_version
        seen = [await waiting.next()]
        while seen[-1]["object"]["metadata"]["namespace"] != sandbox.namespace:
            seen.append(await waiting.next())
        assert summarize(seen[-1]) == ("ADDED", "a", first)
        assert await placed.take(1) == [("ADDED", "a", second)]
        while (event := await waiting.next())["object"]["metadata"][
            "namespace"
        ] != sandbox.namespace:
            pass
        assert summarize(event) == ("DELETED", "a", second)


# Starts


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}], ids=["nowhere", "0"])
async def test_a_watch_without_a_revision_starts_with_the_current_objects(
    sandbox: Sandbox, kube: Kube, path: str, query: dict[str, str]
) -> None:
    first, second = await create(sandbox, "b"), await create(sandbox, "a")
    await current_revision(sandbox)  # brings the server's watch cache up to date
    async with raw_watch(kube, path, labelSelector=MINE, **query) as watched:
        initial = await watched.take(2)
        third = await create(sandbox, "c")
        later = await watched.take(1)

    assert sorted(initial) == [("ADDED", "a", second), ("ADDED", "b", first)]
    assert later == [("ADDED", "c", third)]


async def test_a_watch_from_an_invalid_revision_is_refused(kube: Kube, path: str) -> None:
    with pytest.raises(Unavailable) as refused:
        async with raw_watch(kube, path, resourceVersion="abc"):
            pass
    assert refused.value.code == 500
    assert refused.value.message == (
        'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'
    )


# Ends


async def test_a_watch_ends_at_its_timeout(sandbox: Sandbox, kube: Kube, path: str) -> None:
    begin = await current_revision(sandbox)
    created = await create(sandbox, "a")
    async with raw_watch(
        kube, path, resourceVersion=begin, timeoutSeconds="1", labelSelector=MINE
    ) as watched:
        assert [summarize(event) for event in await watched.rest()] == [("ADDED", "a", created)]


async def test_a_bookmark_is_sent_before_the_end_of_a_watch(
    sandbox: Sandbox, kube: Kube, path: str
) -> None:
    """It covers writes outside the selection; a watch without the option gets none."""
    query = {"resourceVersion": await current_revision(sandbox), "labelSelector": "none=none"}
    async with (
        raw_watch(kube, path, timeoutSeconds="4", allowWatchBookmarks="true", **query) as watched,
        raw_watch(kube, path, timeoutSeconds="4", **query) as without,
    ):
        other = await create(sandbox, "other")
        *others, mark = await watched.rest()
        assert await without.rest() == []

    assert {event["type"] for event in [*others, mark]} == {"BOOKMARK"}
    assert mark["object"]["kind"] == "ConfigMap"
    assert set(mark["object"]["metadata"]) == {"resourceVersion"}
    assert int(mark["object"]["metadata"]["resourceVersion"]) >= int(other)
