"""The journal of an agent's ops: a file of JSON lines that survives crashes.

The first line is a header with the version, and until when entries were dropped; each further line
is an entry, which is on the disk when `append` returns.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from libs.contracts.admission import AgentIdentity, BegunOp, SeenOrders, fingerprint
from libs.contracts.commands import Command, Order
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.message import MalformedMessage, decode, encode
from libs.contracts.reports import Refusal, Result
from libs.runtime.clock import Clock
from libs.runtime.files import replace_file

VERSION = 1

LIMIT = 1024 * 1024
"""Bytes beyond which the journal is compacted to the needed entries and the newest half."""

T = TypeVar("T")

EntryWatcher: TypeAlias = Callable[[Entry], None]
"""Called with each entry once it is in the journal. Must not block."""


class JournalUnusable(Exception):
    """The journal cannot be trusted; the text names the journal, the cause and the remedy."""


class JournalContent(msgspec.Struct, frozen=True):
    """All entries of a journal, oldest first."""

    entries: Sequence[Entry]
    complete_since: float | None
    """The time from which no entry is missing; None: unknown."""


class Journal(Protocol):
    async def open(self) -> Sequence[Entry]:
        """Return all entries, oldest first; raise `JournalUnusable`."""
        ...

    async def append(self, entry: Entry) -> None:
        """Write an entry that survives any crash after the return; raise `JournalUnusable`."""
        ...

    async def read(self) -> JournalContent:
        """Return what the journal has, and change nothing; raise `JournalUnusable`."""
        ...


class RunBlocking(Protocol):
    """Run a blocking function: `asyncio.to_thread`, or inline in a simulation."""

    def __call__(self, function: Callable[[], T], /) -> Coroutine[Any, Any, T]: ...


class FileJournal:
    """A journal in a file. Only one process at a time may use it."""

    def __init__(self, path: Path, *, run: RunBlocking, limit: int = LIMIT) -> None:
        self._file = _File(path, limit=limit)
        self._run = run
        self._busy = asyncio.Lock()

    async def open(self) -> Sequence[Entry]:
        return await self._run_alone(self._file.open)

    async def append(self, entry: Entry) -> None:
        await self._run_alone(lambda: self._file.append(entry))

    async def read(self) -> JournalContent:
        return await self._run_alone(self._file.read)

    async def _run_alone(self, function: Callable[[], T]) -> T:
        """Run one function at a time; a cancelled caller waits, since threads cannot be stopped."""
        async with self._busy:
            running = asyncio.ensure_future(self._run(function))
            try:
                return await asyncio.shield(running)
            finally:
                while not running.done():
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait({running})
                if not running.cancelled():
                    running.exception()  # a cancelled caller does not see it


def compact(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries without which the agent would admit or refuse commands differently."""
    entries = list(entries)
    epochs = [entry.epoch for entry in entries]
    needed = {epochs.index(max(epochs))} if epochs else set[int]()
    highest: dict[tuple[str, str], int] = {}
    began = dict[str, Order]()
    for number, entry in enumerate(entries):
        # By cause, because only some refusals raise the highest order that was seen.
        cause = entry.detail.partition(":")[0] if entry.phase is EntryPhase.REFUSED else ""
        best = highest.setdefault((entry.node_uid, cause), number)
        if entry.order >= entries[best].order:
            highest[entry.node_uid, cause] = number
        if entry.phase is EntryPhase.STARTED:
            began[entry.node_uid] = max(began.get(entry.node_uid, entry.order), entry.order)
    needed.update(highest.values())
    needed.update(
        number
        for number, entry in enumerate(entries)
        if entry.phase is not EntryPhase.REFUSED and began.get(entry.node_uid) == entry.order
    )
    return [entries[number] for number in sorted(needed)]


class _Header(msgspec.Struct, frozen=True, omit_defaults=True):
    journal: int
    dropped_until: float | None = None
    """Entries up to this time were dropped; 0: none was; None: an earlier release wrote it."""


class _FileContent(NamedTuple):
    header: _Header
    entries: list[Entry]
    size: int
    """Bytes of the complete lines."""


class _File:
    """The blocking part. Every line up to `_size` is complete and on the disk."""

    def __init__(self, path: Path, *, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._size = 0

    def open(self) -> list[Entry]:
        try:
            data = self._path.read_bytes() if self._path.exists() else b""
            if not data:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._rewrite([], dropped_until=0.0)
                return []
        except OSError as error:
            raise self._failed("opened", error) from error
        content = self._read(data)
        self._size = content.size
        return content.entries

    def read(self) -> JournalContent:
        try:
            data = self._path.read_bytes()
        except OSError as error:
            raise self._failed("read", error) from error
        content = self._read(data)
        return JournalContent(content.entries, self._complete_since(content))

    def _complete_since(self, content: _FileContent) -> float | None:
        dropped_until = content.header.dropped_until
        if dropped_until is None and content.size < self._limit // 4:
            dropped_until = 0.0  # a compacted journal is twice as long
        if dropped_until is None or not content.entries:
            return None
        # What was before the first entry is unknown, too: the journal may have been lost.
        return dropped_until or content.entries[0].time

    def append(self, entry: Entry) -> None:
        line = encode(entry) + b"\n"
        try:
            if self._size + len(line) > self._limit:
                self._compact()
            with self._path.open("r+b") as file:
                # Remove the rest of a failed write.
                file.truncate(self._size)
                file.seek(self._size)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._failed("written", error) from error
        self._size += len(line)

    def _read(self, data: bytes) -> _FileContent:
        *lines, torn = data.split(b"\n")
        header = self._read_header(lines[0] if lines else b"")
        entries: list[Entry] = []
        size = len(lines[0]) + 1
        for number, line in enumerate(lines[1:], start=2):
            try:
                entries.append(decode(Entry, line))
            except MalformedMessage as error:
                if number == len(lines) and not torn:
                    break  # a crash may leave the last line at full length without its data
                raise self._refused(
                    f"line {number} is damaged ({error})",
                    "keep a copy for analysis",
                ) from None
            size += len(line) + 1
        return _FileContent(header, entries, size)

    def _read_header(self, line: bytes) -> _Header:
        try:
            header = msgspec.json.decode(line, type=_Header)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._refused(
                "it does not start with a header", "find out what wrote it"
            ) from None
        if header.journal != VERSION:
            raise self._refused(
                f"it is of version {header.journal}, and this release reads version {VERSION}",
                "run the release that wrote it",
            )
        return header

    def _compact(self) -> None:
        header, entries, _ = self._read(self._path.read_bytes())
        room = self._limit // 2
        keep = {id(entry) for entry in compact(entries)}
        for entry in reversed(entries):
            room -= len(encode(entry)) + 1
            if room < 0:
                break
            keep.add(id(entry))
        dropped = [entry.time for entry in entries if id(entry) not in keep]
        self._rewrite(
            [entry for entry in entries if id(entry) in keep],
            dropped_until=max([header.dropped_until or 0.0, *dropped]),
        )

    def _rewrite(self, entries: list[Entry], *, dropped_until: float) -> None:
        header = msgspec.json.encode(_Header(VERSION, dropped_until))
        data = b"".join(line + b"\n" for line in (header, *(encode(entry) for entry in entries)))
        replace_file(self._path, data)
        self._size = len(data)

    def _failed(self, action: str, error: OSError) -> JournalUnusable:
        return JournalUnusable(
            f"journal {self._path}: it cannot be {action} ({error.strerror or error}):"
            f" free disk space or make the file writable; the next command tries again"
        )

    def _refused(self, why: str, remedy: str) -> JournalUnusable:
        return JournalUnusable(
            f"journal {self._path}: {why}: {remedy}, or move the file away; without it, the"
            f" command in the slot counts as new"
        )


class OpHistory:
    """The commands that an agent has seen and executed: the state that its journal adds up to.

    Each entry is appended to the journal before it counts, so that a restart changes nothing. A
    journal that failed is opened again before the next command.
    """

    def __init__(self, *, journal: Journal, clock: Clock, agent: AgentIdentity) -> None:
        self._journal = journal
        self._clock = clock
        self._agent = agent
        self._is_open = False
        self.seen = SeenOrders(node_uid=agent.node_uid)
        self.last_error = ""
        """Why the journal cannot be used; empty if it can."""
        self.watchers: list[EntryWatcher] = []

    async def open(self) -> None:
        """Read the journal if it is not open; raise `JournalUnusable`."""
        if self._is_open:
            return
        try:
            entries = await self._journal.open()
        except JournalUnusable as error:
            self.last_error = str(error)
            raise
        for entry in entries:
            self.seen = self.seen.after(entry)
        self._is_open = True
        self.last_error = ""

    async def read(self) -> JournalContent:
        """Return what the journal has; raise `JournalUnusable`."""
        return await self._journal.read()

    async def record_seen(self, command: Command) -> None:
        """Append the command's epoch and order, if either is the highest so far."""
        if command.epoch > self.seen.epoch or command.order > self.seen.order:
            await self._append(command, EntryPhase.STEP)

    async def record_started(self, command: Command) -> BegunOp:
        detail = fingerprint(command)
        return BegunOp.from_entry(await self._append(command, EntryPhase.STARTED, detail))

    async def record_step(self, command: Command, step: str) -> None:
        await self._append(command, EntryPhase.STEP, step)

    async def record_finished(self, result: Result) -> None:
        await self._append(result, EntryPhase.FINISHED, result.outcome)

    async def record_refused(self, refusal: Refusal) -> None:
        await self._append(refusal, EntryPhase.REFUSED, f"{refusal.code}: {refusal.message}")

    async def _append(
        self, source: Command | Result | Refusal, phase: EntryPhase, detail: str = ""
    ) -> Entry:
        entry = Entry(
            node=self._agent.node,
            node_uid=self._agent.node_uid,
            boot_id=self._agent.boot_id,
            component=self._agent.component,
            epoch=source.epoch,
            token=source.token,
            op=source.op,
            command=source.kind if isinstance(source, Command) else source.command,
            phase=phase,
            time=self._clock.now(),
            detail=detail,
            result=source if isinstance(source, Result) else None,
        )
        await self.open()
        try:
            await self._journal.append(entry)
        except JournalUnusable as error:
            self._is_open = False
            self.last_error = str(error)
            raise
        self.seen = self.seen.after(entry)
        for watcher in self.watchers:
            watcher(entry)
        return entry
