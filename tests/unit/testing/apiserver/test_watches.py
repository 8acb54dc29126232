"""The line of one watch: events and bookmarks in the order in which they came to be."""

import pytest

from libs.testing.apiserver.kinds.kind import ResourceKind, ResourceKinds
from libs.testing.apiserver.storage import watches
from libs.testing.apiserver.storage.selection import Selection
from libs.testing.apiserver.storage.store import StoredChange, StoredObject
from libs.testing.apiserver.storage.watches import ConnectionCut, ServerWatch, WatchEvent


def kind() -> ResourceKind:
    found = ResourceKinds().by_path("", "v1", "configmaps")
    assert found is not None
    return found


def watch() -> ServerWatch:
    everything = Selection(kind(), namespace="", name="", query={})
    return ServerWatch(kind(), everything, user="ann", after=0)


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
    """Up to the end: bookmarks in brackets."""
    found: list[str] = []
    while (news := await watch.next()) is not None:
        if isinstance(news, int):
            found.append(f"[{news}]")
        else:
            found += [event.raw(how).decode() for how, event in news]
    return found


async def test_a_bookmark_comes_after_what_was_before_it_and_before_what_came_later() -> None:
    line = watch()
    publish(line, 1, 2)
    line.add_bookmark(2)
    publish(line, 5)
    line.add_bookmark(7)
    line.add_bookmark(9)
    line.end()
    assert await delivered(line) == ["1", "2", "[2]", "5", "[9]"]


async def test_after_an_overflow_nothing_says_that_all_was_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watches, "BUFFER", 3)
    line = watch()
    publish(line, 1, 2, 3, 4, 5)
    line.add_bookmark(5)
    assert await delivered(line) == ["1", "2", "3"]


async def test_a_watch_that_is_dropped_takes_its_bookmarks_with_it() -> None:
    line = watch()
    line.remaining_events, line.ends_clean = 2, True
    publish(line, 1, 2, 3)
    line.add_bookmark(3)
    assert await delivered(line) == ["1", "2"]


async def test_a_watch_that_is_cut_says_nothing_more() -> None:
    line = watch()
    publish(line, 1)
    line.add_bookmark(1)
    line.end(clean=False)
    with pytest.raises(ConnectionCut):
        await line.next()
