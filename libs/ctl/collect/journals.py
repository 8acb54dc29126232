"""Read the agents' journals through the scheduler, and judge those of one node after another."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeAlias

import msgspec

from libs.audit.agents import AgentAudit, AgentJournal
from libs.contracts.journal import Entry
from libs.contracts.queries import JournalAnswer, JournalPart, JournalQuery
from libs.ctl.failures import ExitCode, Failure

CONCURRENT: Final = 2
"""Nodes that are read at a time; the scheduler asks no more."""
MAX_ENTRIES: Final = 100_000
"""Entries of one journal that are read; a journal has room for far fewer."""
TRIES: Final = 3
"""How often a journal is read that was shortened meanwhile."""

AskJournals: TypeAlias = Callable[[JournalQuery], Awaitable[JournalAnswer]]


class JournalsRead(msgspec.Struct):
    """What was read."""

    nodes: int = 0
    journals: int = 0
    entries: int = 0
    unread: list[str] = []
    """Journals that could not be read, or not from their beginning, each with the reason."""
    problem: str = ""
    """Why not all nodes were asked."""


class JournalReader:
    """Reads the journals of all nodes that an audit names."""

    def __init__(
        self, ask: AskJournals, audit: AgentAudit, *, on_progress: Callable[[int, int], None]
    ) -> None:
        self._ask = ask
        self._audit = audit
        self._nodes = audit.nodes
        self._on_progress = on_progress
        self._read = JournalsRead()

    async def run(self) -> JournalsRead:
        """Read them node by node; none is kept once it is judged."""
        waiting = iter(self._nodes)
        await asyncio.gather(*(self._work(waiting) for _ in range(CONCURRENT)))
        self._read.unread.sort()
        return self._read

    async def _work(self, waiting: Iterator[str]) -> None:
        for node in waiting:
            if self._read.problem:
                return
            try:
                journals = await self._journals(node)
            except Failure as failure:
                if failure.code is ExitCode.NOT_FOUND:
                    self._read.unread.append(f"{node}: {failure}")
                    continue
                self._read.problem = f"{node}: {failure}"
                return
            self._audit.judge(node, journals)
            self._read.nodes += 1
            self._on_progress(self._read.nodes, len(self._nodes))

    async def _journals(self, node: str) -> list[AgentJournal]:
        answer = await self._page(JournalQuery(node=node))
        journals: list[AgentJournal] = []
        for part in answer.parts:
            journal, problem = await self._whole(answer, part)
            if problem:
                self._read.unread.append(f"{node}: {part.component}: {problem}")
            if journal is not None:
                journals.append(journal)
                self._read.journals += 1
                self._read.entries += len(journal.entries)
        return journals

    async def _whole(
        self, answer: JournalAnswer, part: JournalPart
    ) -> tuple[AgentJournal | None, str]:
        """Return the journal that begins with a page; what is missing of it, where any is."""
        for _ in range(TRIES):
            entries, last = list(part.entries), part
            while not last.problem and last.next is not None and len(entries) < MAX_ENTRIES:
                last = await self._part(answer.node, part.component, last.next)
                if last.complete_since != part.complete_since:
                    break
                entries += last.entries
            else:
                if last.problem:
                    return None, last.problem
                return _journal(answer, part, entries)
            part = await self._part(answer.node, part.component, 0)
        return None, "it was shortened each time while it was read"

    async def _part(self, node: str, component: str, after: int) -> JournalPart:
        answer = await self._page(JournalQuery(node=node, after={component: after}))
        found = [each for each in answer.parts if each.component == component]
        return found[0] if found else JournalPart(component=component, problem="it has no answer")

    async def _page(self, query: JournalQuery) -> JournalAnswer:
        from libs.ctl.bus import when_ready

        return await when_ready(lambda: self._ask(query))


def _journal(
    answer: JournalAnswer, part: JournalPart, entries: list[Entry]
) -> tuple[AgentJournal, str]:
    journal = AgentJournal(
        node_uid=answer.node_uid,
        component=part.component,
        entries=entries,
        complete_since=part.complete_since,
    )
    is_unknown = bool(entries) and part.complete_since is None
    return journal, "it does not say from when on it has every entry" if is_unknown else ""
