"""What an agent has seen and done, in its journal and folded in memory.

Nothing is known here that the journal does not keep: each entry is appended first.
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
"""Takes what was just kept. Must not block."""


class OpHistory:
    """One agent's record. A journal that was refused is opened again before the next command."""

    def __init__(self, *, journal: Journal, clock: Clock, agent: AgentIdentity) -> None:
        self._journal = journal
        self._clock = clock
        self._place = agent
        self._is_open = False
        self.seen = SeenOrders(node_uid=agent.node_uid)
        self.last_error = ""
        """Why the journal was refused last, in words; empty if it was not."""
        self.watchers: list[EntryWatcher] = []

    async def open(self) -> None:
        """Read the journal, if it is not read; raises `JournalRefused`."""
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
        """Keep that there was such an epoch and order, if either is news."""
        if command.epoch > self.seen.epoch or command.order > self.seen.order:
            await self._keep(command, EntryPhase.STEP)

    async def record_started(self, command: Command) -> BegunOp:
        """Keep that this op begins."""
        return BegunOp.from_entry(
            await self._keep(command, EntryPhase.STARTED, detail=fingerprint(command))
        )

    async def record_step(self, command: Command, step: str) -> None:
        """Keep that this sub-step of an op begins."""
        await self._keep(command, EntryPhase.STEP, detail=step)

    async def record_finished(self, begun: BegunOp, result: Result) -> None:
        """Keep how an op ended."""
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
        """Keep that a command was refused, and why."""
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

    async def _keep(self, command: Command, phase: EntryPhase, *, detail: str = "") -> Entry:
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
        place = self._place
        return Entry(
            node=place.node,
            node_uid=place.node_uid,
            boot_id=place.boot_id,
            component=place.component,
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
