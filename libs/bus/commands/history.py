"""The commands that an agent has seen and executed: its journal, folded in memory.

Each entry is appended to the journal before it counts, so that a restart changes nothing.
"""

from collections.abc import Callable
from typing import TypeAlias

from libs.bus.journal import Journal, JournalUnusable
from libs.contracts.admission import AgentIdentity, BegunOp, SeenOrders, fingerprint
from libs.contracts.commands import Command
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.reports import Refusal, Result
from libs.runtime.clock import Clock

EntryWatcher: TypeAlias = Callable[[Entry], None]
"""Called with each entry once it is in the journal. Must not block."""


class OpHistory:
    """One agent's history. A journal that failed is opened again before the next command."""

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
        """Read the journal unless that is done; raise `JournalUnusable`."""
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

    async def record_seen(self, command: Command) -> None:
        """Append the command's epoch and order, if either is the highest so far."""
        if command.epoch > self.seen.epoch or command.order > self.seen.order:
            await self._append_command(command, EntryPhase.STEP)

    async def record_started(self, command: Command) -> BegunOp:
        return BegunOp.from_entry(
            await self._append_command(command, EntryPhase.STARTED, detail=fingerprint(command))
        )

    async def record_step(self, command: Command, step: str) -> None:
        await self._append_command(command, EntryPhase.STEP, detail=step)

    async def record_finished(self, begun: BegunOp, result: Result) -> None:
        await self._append(
            self._entry(
                epoch=result.epoch,
                token=begun.order.token,
                op=begun.order.op,
                command=begun.command,
                phase=EntryPhase.FINISHED,
                detail=result.outcome,
                result=result,
            )
        )

    async def record_refused(self, refusal: Refusal) -> None:
        await self._append(
            self._entry(
                epoch=refusal.epoch,
                token=refusal.token,
                op=refusal.op,
                command=refusal.command,
                phase=EntryPhase.REFUSED,
                detail=f"{refusal.code}: {refusal.message}",
            )
        )

    async def _append_command(
        self, command: Command, phase: EntryPhase, *, detail: str = ""
    ) -> Entry:
        entry = self._entry(
            epoch=command.epoch,
            token=command.token,
            op=command.op,
            command=command.kind,
            phase=phase,
            detail=detail,
        )
        await self._append(entry)
        return entry

    def _entry(
        self,
        *,
        epoch: int,
        token: int,
        op: int,
        command: str,
        phase: EntryPhase,
        detail: str,
        result: Result | None = None,
    ) -> Entry:
        agent = self._agent
        return Entry(
            node=agent.node,
            node_uid=agent.node_uid,
            boot_id=agent.boot_id,
            component=agent.component,
            epoch=epoch,
            token=token,
            op=op,
            command=command,
            phase=phase,
            time=self._clock.now(),
            detail=detail,
            result=result,
        )

    async def _append(self, entry: Entry) -> None:
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
