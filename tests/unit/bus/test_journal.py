"""The journal: crashes, damage and compaction."""

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from libs.bus.journal import FileJournal, JournalUnusable, compact
from libs.contracts.admission import SeenOrders
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.message import encode
from libs.contracts.reports import Outcome, Result

T = TypeVar("T")

STARTED, STEP = EntryPhase.STARTED, EntryPhase.STEP
FINISHED, REFUSED = EntryPhase.FINISHED, EntryPhase.REFUSED


async def inline(function: Callable[[], T], /) -> T:
    return function()


def entry(op: int, phase: EntryPhase, *, uid: str = "uid-1", epoch: int = 1, by: str = "") -> Entry:
    return Entry(
        node="a.example",
        node_uid=uid,
        boot_id="boot-1",
        component="driver",
        epoch=epoch,
        token=1,
        op=op,
        command="quiesce",
        phase=phase,
        time=1.8e9,
        detail=by,
        result=Result(epoch=epoch, token=1, op=op, command="quiesce", outcome=Outcome.DONE)
        if phase is FINISHED
        else None,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journals" / "driver.jsonl"


def journal(path: Path, *, limit: int = 1024 * 1024) -> FileJournal:
    return FileJournal(path, run=asyncio.to_thread, limit=limit)


async def test_entries_survive_the_process(path: Path) -> None:
    first = journal(path)
    assert await first.open() == []
    await first.append(entry(1, STARTED))
    await first.append(entry(1, FINISHED))
    assert await journal(path).open() == [entry(1, STARTED), entry(1, FINISHED)]
    assert _content(path).startswith(b'{"journal":1,"dropped_until":0.0}\n')
    assert _files(path.parent) == ["driver.jsonl"]


def test_each_entry_is_on_the_disk_before_append_returns(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []

    def sync(_: int) -> None:
        synced.append(_content(path))

    monkeypatch.setattr("os.fsync", sync)
    own = FileJournal(path, run=inline)
    asyncio.run(own.open())
    before = len(synced)
    asyncio.run(own.append(entry(1, STARTED)))
    assert len(synced) == before + 1
    assert synced[-1].endswith(encode(entry(1, STARTED)) + b"\n")


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _files(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


def _remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("cut", range(1, 60, 7))
async def test_a_torn_last_line_is_dropped_and_overwritten(path: Path, cut: int) -> None:
    own = journal(path)
    await own.open()
    await own.append(entry(1, STARTED))
    await own.append(entry(1, FINISHED))
    _write(path, _content(path)[:-cut])
    reopened = journal(path)
    assert await reopened.open() == [entry(1, STARTED)]
    await reopened.append(entry(2, STARTED))
    assert await journal(path).open() == [entry(1, STARTED), entry(2, STARTED)]


async def test_a_last_line_of_full_length_without_data_is_dropped(path: Path) -> None:
    own = journal(path)
    await own.open()
    await own.append(entry(1, STARTED))
    _write(path, _content(path) + b"\0" * 40 + b"\n")
    assert await journal(path).open() == [entry(1, STARTED)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"journal":2}\n', "of version 2, and this release reads version 1: run the release"),
        (b'{"other":1}\n', "does not start with a header"),
        (b'{"journal":1}', "does not start with a header"),
        (b'{"journal":1}\nnonsense\n' + encode(entry(1, STARTED)) + b"\n", "line 2 is damaged"),
    ],
)
def test_a_damaged_journal_is_refused_and_left_unchanged(
    path: Path, content: bytes, words: str
) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(JournalUnusable, match=words) as refused:
        asyncio.run(journal(path).open())
    assert str(path) in str(refused.value)
    assert "move the file away" in str(refused.value)
    assert path.read_bytes() == content


def test_an_empty_file_is_a_new_journal(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    assert asyncio.run(journal(path).open()) == []
    assert path.read_bytes() == b'{"journal":1,"dropped_until":0.0}\n'


async def test_a_journal_says_from_when_on_it_is_complete(path: Path) -> None:
    own = journal(path, limit=4000)
    await own.open()
    assert (await own.read()).complete_since is None, "what was before it is not known"
    since: list[float] = []
    for number in range(1, 41):
        at = 1.8e9 + number
        await own.append(replace(entry(number, STARTED), time=at))
        content = await own.read()
        assert content.complete_since is not None
        since.append(content.complete_since)
        later = [each.time for each in content.entries if each.time > since[-1]]
        assert later == [since[-1] + step for step in range(1, int(at - since[-1]) + 1)]
    assert since[0] == 1.8e9 + 1
    assert since[-1] > 1.8e9 + 20
    assert (await journal(path, limit=4000).read()).complete_since == since[-1]


@pytest.mark.parametrize(("limit", "known"), [(1024 * 1024, True), (400, False)])
def test_a_journal_of_an_earlier_release_may_have_been_compacted(
    path: Path, limit: int, known: bool
) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{"journal":1}\n' + encode(entry(1, STARTED)) + b"\n")
    content = asyncio.run(journal(path, limit=limit).read())
    assert content.complete_since == (1.8e9 if known else None)


async def test_reading_changes_nothing(path: Path) -> None:
    with pytest.raises(JournalUnusable, match="cannot be read"):
        await journal(path).read()
    assert not path.parent.exists()


def test_an_os_error_is_reported_with_its_cause(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(JournalUnusable, match="cannot be opened"):
        asyncio.run(journal(path).open())
    path.rmdir()

    async def story() -> None:
        own = journal(path)
        await own.open()
        _remove(path)
        with pytest.raises(JournalUnusable, match=r"cannot be written \(No such file"):
            await own.append(entry(1, STARTED))
        assert await own.open() == []
        await own.append(entry(1, STARTED))
        assert await own.open() == [entry(1, STARTED)]

    asyncio.run(story())


async def test_a_long_journal_is_compacted(path: Path) -> None:
    limit = 8 * 1024

    own = journal(path, limit=limit)
    await own.open()
    await own.append(entry(9, STARTED, uid="uid-0", epoch=7))
    for op in range(1, 200):
        await own.append(entry(op, STARTED))
        await own.append(entry(op, FINISHED))
        assert len(_content(path)) <= limit
    kept = list(await journal(path, limit=limit).open())
    assert kept[0] == entry(9, STARTED, uid="uid-0", epoch=7)
    assert kept[-2:] == [entry(199, STARTED), entry(199, FINISHED)]
    assert 3 < len(kept) < 50


def test_a_compacted_journal_gives_the_same_decisions() -> None:
    story = [
        entry(4, STARTED, uid="uid-0", epoch=9),
        entry(1, STARTED),
        entry(1, FINISHED),
        entry(2, STEP, epoch=2),
        entry(2, STARTED, epoch=2),
        entry(2, STEP, epoch=2, by="unload"),
        entry(5, REFUSED, by="other-boot: it is for boot-0"),
        entry(7, REFUSED, by="older-epoch: another scheduler leads"),
    ]
    for length in range(len(story) + 1):
        for uid in ("uid-0", "uid-1"):
            assert _seen_orders(compact(story[:length]), uid) == _seen_orders(story[:length], uid)
    assert _seen_orders(story, "uid-1").order == (1, 5)
    assert len(compact(story)) < len(story)


def _seen_orders(entries: list[Entry], uid: str) -> SeenOrders:
    seen = SeenOrders(node_uid=uid)
    for each in entries:
        seen = seen.after(each)
    return seen


def test_a_cancelled_append_waits_for_its_write(path: Path) -> None:
    async def story() -> None:
        may_write = threading.Event()

        async def run_slowly(function: Callable[[], T]) -> T:
            def after_release() -> T:
                may_write.wait()
                return function()

            return await asyncio.to_thread(after_release)

        slow = FileJournal(path, run=run_slowly)
        may_write.set()
        await slow.open()
        may_write.clear()
        cancelled = asyncio.create_task(slow.append(entry(1, STARTED)))
        await asyncio.sleep(0)
        cancelled.cancel()
        following = asyncio.create_task(slow.append(entry(2, STARTED)))
        await asyncio.sleep(0)
        assert not cancelled.done()
        may_write.set()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await following

    asyncio.run(story())
    kept = asyncio.run(journal(path).open())
    assert kept == [entry(1, STARTED), entry(2, STARTED)]


def test_the_failed_write_of_a_cancelled_append_is_not_reported_as_unhandled(path: Path) -> None:
    def remove_file() -> None:
        path.unlink()

    async def story() -> list[str]:
        reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: reported.append(context["message"])
        )

        async def run_later(function: Callable[[], T]) -> T:
            await asyncio.sleep(0)
            return function()

        failing = FileJournal(path, run=run_later)
        await failing.open()
        remove_file()
        cancelled = asyncio.create_task(failing.append(entry(1, STARTED)))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        del cancelled
        gc.collect()
        return reported

    assert asyncio.run(story()) == []
