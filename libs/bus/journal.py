"""An agent's journal of ops: what it began and how that ended, kept before anybody is told.

A file of JSON lines: a header that names the version, then one entry a line, each on the disk when
`append` returns. A file that this release cannot trust is refused in words. What an entry means for
the next command is not decided here.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from libs.contracts.commands import Order
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.message import MalformedMessage, decode, encode

VERSION = 1

LIMIT = 1024 * 1024
"""Bytes beyond which a journal is written anew, with what is needed and the youngest half."""

T = TypeVar("T")


class JournalUnusable(Exception):
    """The journal cannot be relied upon; the text says which, why, and what a person can do."""


class Journal(Protocol):
    """Where an agent keeps its entries."""

    async def open(self) -> Sequence[Entry]:
        """All entries that are kept, oldest first; raises `JournalRefused`."""
        ...

    async def append(self, entry: Entry) -> None:
        """Keep an entry over any crash from the moment of return on; raises `JournalRefused`."""
        ...


class RunBlocking(Protocol):
    """How a blocking function is run: `asyncio.to_thread`, or inline in a simulation."""

    def __call__(self, function: Callable[[], T], /) -> Coroutine[Any, Any, T]: ...


class MemoryJournal:
    """A journal for simulations: one process's hold of a list that outlives it.

    `pause` is awaited before and after an entry is kept, so that a kill fits between any two steps.
    """

    def __init__(
        self, kept: list[Entry], *, pause: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._kept = kept
        self._pause = pause
        self._cut = False

    async def open(self) -> Sequence[Entry]:
        """What earlier processes kept."""
        await self._pause()
        return tuple(self._kept)

    async def append(self, entry: Entry) -> None:
        """Keep an entry, unless this process was killed."""
        await self._pause()
        if self._cut:
            raise JournalUnusable("the process that writes this journal was killed")
        self._kept.append(entry)
        await self._pause()

    def kill(self) -> None:
        """Nothing of this process reaches the list any more."""
        self._cut = True


class FileJournal:
    """A journal in a file, which belongs to one process at a time."""

    def __init__(self, path: Path, *, run: RunBlocking, limit: int = LIMIT) -> None:
        self._file = _File(path, limit=limit)
        self._run = run
        self._busy = asyncio.Lock()

    async def open(self) -> Sequence[Entry]:
        """Read the file, or make it."""
        return await self._alone(self._file.open)

    async def append(self, entry: Entry) -> None:
        """Write a line and wait until it is on the disk."""
        await self._alone(lambda: self._file.append(entry))

    async def _alone(self, function: Callable[[], T]) -> T:
        """One at a time: a thread cannot be cancelled, so who is cancelled waits for it."""
        async with self._busy:
            running = asyncio.ensure_future(self._run(function))
            try:
                return await asyncio.shield(running)
            finally:
                while not running.done():
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait({running})


def compact(entries: Iterable[Entry]) -> list[Entry]:
    """Of these entries, the ones without which a later command would be judged otherwise."""
    kept = list(entries)
    epochs = [entry.epoch for entry in kept]
    wanted = {epochs.index(max(epochs))} if epochs else set[int]()
    greatest: dict[tuple[str, str], int] = {}
    began = dict[str, Order]()
    for number, entry in enumerate(kept):
        # Refusals of each cause by themselves: an order counts after some, and not after others.
        cause = entry.detail.partition(":")[0] if entry.phase is EntryPhase.REFUSED else ""
        best = greatest.setdefault((entry.node_uid, cause), number)
        if entry.order >= kept[best].order:
            greatest[entry.node_uid, cause] = number
        if entry.phase is EntryPhase.STARTED:
            began[entry.node_uid] = max(began.get(entry.node_uid, entry.order), entry.order)
    wanted.update(greatest.values())
    wanted.update(
        number
        for number, entry in enumerate(kept)
        if entry.phase is not EntryPhase.REFUSED and began.get(entry.node_uid) == entry.order
    )
    return [kept[number] for number in sorted(wanted)]


class _Header(msgspec.Struct, frozen=True):
    journal: int


class _File:
    """The blocking part. Every line up to `_size` is known to be whole and on the disk."""

    def __init__(self, path: Path, *, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._size = 0

    def open(self) -> list[Entry]:
        try:
            data = self._path.read_bytes() if self._path.exists() else b""
            if not data:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._write_anew([])
                return []
        except OSError as error:
            raise self._failed("opened", error) from error
        return self._read(data)

    def append(self, entry: Entry) -> None:
        line = encode(entry) + b"\n"
        try:
            if self._size + len(line) > self._limit:
                self._compact()
            with self._path.open("r+b") as file:
                # What a write that failed has left behind is no line, and goes.
                file.truncate(self._size)
                file.seek(self._size)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._failed("written", error) from error
        self._size += len(line)

    def _read(self, data: bytes) -> list[Entry]:
        *lines, torn = data.split(b"\n")
        self._check_header(lines[0] if lines else b"")
        entries: list[Entry] = []
        size = len(lines[0]) + 1
        for number, line in enumerate(lines[1:], start=2):
            try:
                entries.append(decode(Entry, line))
            except MalformedMessage as error:
                if number == len(lines) and not torn:
                    break  # a crash midway may leave the last line long enough, and not written
                raise self._refused(
                    f"line {number} is damaged ({error})",
                    "keep a copy for whoever looks into it",
                ) from None
            size += len(line) + 1
        self._size = size
        return entries

    def _check_header(self, line: bytes) -> None:
        try:
            version = msgspec.json.decode(line, type=_Header).journal
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._refused("it does not begin with a header", "see what wrote it") from None
        if version != VERSION:
            raise self._refused(
                f"it is of version {version}, and this release reads version {VERSION}",
                "run the release that wrote it",
            )

    def _compact(self) -> None:
        entries = self._read(self._path.read_bytes())
        room = self._limit // 2
        keep = {id(entry) for entry in compact(entries)}
        for entry in reversed(entries):
            room -= len(encode(entry)) + 1
            if room < 0:
                break
            keep.add(id(entry))
        self._write_anew([entry for entry in entries if id(entry) in keep])

    def _write_anew(self, entries: list[Entry]) -> None:
        header = msgspec.json.encode(_Header(VERSION))
        data = b"".join(line + b"\n" for line in (header, *(encode(entry) for entry in entries)))
        beside = self._path.with_name(self._path.name + ".new")
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self._size = len(data)

    def _failed(self, what: str, error: OSError) -> JournalUnusable:
        return JournalUnusable(
            f"journal {self._path}: it cannot be {what} ({error.strerror or error}):"
            f" make room or the file writable; it is tried again with the next command"
        )

    def _refused(self, why: str, first: str) -> JournalUnusable:
        return JournalUnusable(
            f"journal {self._path}: {why}: {first}, or move the file away; without it, what the"
            f" slot says is taken as new"
        )
