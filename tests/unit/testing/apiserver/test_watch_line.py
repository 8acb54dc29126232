"""The line of one watch: events and bookmarks in the order in which they came to be."""

import pytest

from libs.testing.apiserver.kinds import Kind, Kinds
from libs.testing.apiserver.storage import watches
from libs.testing.apiserver.storage.selection import Selection
from libs.testing.apiserver.storage.store import Change, Stored
from libs.testing.apiserver.storage.watches import Event, Severed, Watch


def kind() -> Kind:
    found = Kinds().by_path("", "v1", "configmaps")
    assert found is not None
    return found


def watch() -> Watch:
    everything = Selection(kind(), namespace="", name="", query={})
    return Watch(kind(), everything, user="ann", after=0)


def tell(watch: Watch, *revisions: int) -> None:
    for revision in revisions:
        stored = Stored(
            namespace="default",
            name=f"c{revision}",
            uid="u",
            revision=revision,
            raw=b"%d" % revision,
            labels={},
            fields=(),
        )
        change = Change(revision=revision, before=None, after=stored)
        watch.offer(change, Event(change))


async def heard(watch: Watch) -> list[str]:
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
    tell(line, 1, 2)
    line.mark(2)
    tell(line, 5)
    line.mark(7)
    line.mark(9)
    line.end()
    assert await heard(line) == ["1", "2", "[2]", "5", "[9]"]


async def test_after_an_overflow_nothing_says_that_all_was_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watches, "BUFFER", 3)
    line = watch()
    tell(line, 1, 2, 3, 4, 5)
    line.mark(5)
    assert await heard(line) == ["1", "2", "3"]


async def test_a_watch_that_is_dropped_takes_its_bookmarks_with_it() -> None:
    line = watch()
    line.left, line.ends_clean = 2, True
    tell(line, 1, 2, 3)
    line.mark(3)
    assert await heard(line) == ["1", "2"]


async def test_a_watch_that_is_cut_says_nothing_more() -> None:
    line = watch()
    tell(line, 1)
    line.mark(1)
    line.end(clean=False)
    with pytest.raises(Severed):
        await line.next()
