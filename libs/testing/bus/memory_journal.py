"""A journal in memory, for agents in simulations and tests."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from libs.bus.journal import JournalContent, JournalUnusable
from libs.contracts.journal import Entry


class MemoryJournal:
    """A journal for simulations, in a list that outlives the simulated process.

    `pause` is awaited before and after each write, so that a kill can happen at either point.
    """

    def __init__(
        self, entries: list[Entry], *, pause: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._entries = entries
        self._pause = pause
        self._killed = False

    async def open(self) -> Sequence[Entry]:
        await self._pause()
        return tuple(self._entries)

    async def append(self, entry: Entry) -> None:
        await self._pause()
        if self._killed:
            raise JournalUnusable("the process that writes this journal was killed")
        self._entries.append(entry)
        await self._pause()

    async def read(self) -> JournalContent:
        await self._pause()
        entries = tuple(self._entries)
        return JournalContent(entries, entries[0].time if entries else None)

    def kill(self) -> None:
        """Fail every later write of this process."""
        self._killed = True
