"""Read a component's command slot; execute each command once, or refuse it with a reason.

Commands are ordered by (node uid, token, op). Starts and results are journalled before they are
reported, so a restarted agent resumes a started op and reports a finished one again.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from libs.bus.commands.checks import CheckHandler, CheckReceiver
from libs.bus.commands.executor import (
    BeforeStart,
    CommandHandler,
    OpExecutor,
    do_nothing_before_start,
)
from libs.bus.commands.journal_pages import JournalPages
from libs.bus.journal import EntryWatcher, Journal, JournalUnusable, OpHistory
from libs.bus.port import Bus, BusError
from libs.bus.reporter import RECONNECT_SPREAD, Reporter
from libs.bus.slots import SlotReader, SlotValue, watch_notifications
from libs.contracts import subjects
from libs.contracts.admission import (
    OUTRANKED_CODES,
    AgentIdentity,
    BegunOp,
    SeenOrders,
    find_refusal,
    is_for,
    is_permanent,
    make_refusal,
)
from libs.contracts.commands import CheckKind, Command, CommandKind, Order
from libs.contracts.reports import Outcome, Refusal, RefusalCode
from libs.runtime.clock import Backoff, jittered
from libs.runtime.env import Env
from libs.runtime.tasks import wait_up_to

PERIOD = 60.0
"""Seconds after which the slot is read without a notification, before jitter."""


class CommandReceiver:
    """Receives the commands and checks of one component, in one boot of one node."""

    def __init__(
        self,
        *,
        bus: Bus,
        env: Env,
        journal: Journal,
        reporter: Reporter,
        node_uid: str,
        boot_id: str,
        handlers: Mapping[CommandKind, CommandHandler],
        checks: Mapping[CheckKind, CheckHandler],
        before_start: BeforeStart = do_nothing_before_start,
    ) -> None:
        identity = bus.identity
        self._env = env
        self._bus = bus
        self._clock = env.clock
        self._random = env.random
        self._reporter = reporter
        self._slot = subjects.Command(
            cluster=identity.cluster, node=identity.node, component=identity.writer
        )
        self._agent = AgentIdentity(
            node=identity.node,
            node_uid=node_uid,
            boot_id=boot_id,
            component=identity.writer,
            handles=tuple(handlers),
        )
        self._reader = SlotReader(bus=bus, env=env, slot=self._slot, kind=Command)
        self._history = OpHistory(journal=journal, clock=env.clock, agent=self._agent)
        self._executor = OpExecutor(
            link=bus.link,
            env=env,
            agent=self._agent,
            receiver=self,
            history=self._history,
            reporter=reporter,
            handlers=handlers,
            before_start=before_start,
        )
        self._checks = CheckReceiver(
            bus=bus,
            env=env,
            reporter=reporter,
            node_uid=node_uid,
            boot_id=boot_id,
            handlers=checks,
            pages=JournalPages(bus=bus, clock=env.clock, history=self._history, boot_id=boot_id),
        )
        self._changed = asyncio.Event()
        self._reconnected = False
        self._reported_last = False
        self._superseded_by = ""
        self._refused: tuple[object, ...] = ()
        self._start_by: tuple[Order, float] | None = None
        """The last order that was read, and until when it may be begun, by the monotonic clock."""
        self.known_kinds = tuple(sorted({*handlers, *checks, CheckKind.JOURNAL}))
        """The kinds of commands and checks with a handler; published in heartbeats."""
        self.slot_lock = asyncio.Lock()
        """Held while the slot is read and judged: meanwhile `current` does not change."""
        self.current: Command | None = None
        """The accepted command in the slot; None while it is unknown or refused."""
        self.has_read_slot = False
        """Whether this process has read the slot, whatever it holds."""
        self._read_error = ""

    @property
    def last_error(self) -> str:
        """Why the slot or the journal cannot be used; empty if both can."""
        return self._history.last_error or self._read_error

    @property
    def seen(self) -> SeenOrders:
        """The highest epoch and order seen, including by earlier processes."""
        return self._history.seen

    @property
    def command_in_effect(self) -> CommandKind | None:
        """The last command started, if it is done and its effect outlasts this process.

        Known after `open`, before the bus is connected, so that a component that was quiesced
        starts quiesced.
        """
        begun = self._history.seen.begun
        if begun is None or begun.result is None or begun.result.outcome is not Outcome.DONE:
            return None
        return CommandKind(begun.command) if self._is_of_this_boot(begun) else None

    @property
    def begun_in_this_boot(self) -> BegunOp | None:
        """The last op that was begun, if this boot began it."""
        begun = self._history.seen.begun
        return begun if begun is not None and begun.boot_id == self._agent.boot_id else None

    def on_entry(self, watcher: EntryWatcher) -> None:
        """Call `watcher` with each new entry once it is in the journal."""
        self._history.watchers.append(watcher)

    async def open(self) -> None:
        """Read the journal. If that fails, each command is refused until a retry succeeds."""
        with suppress(JournalUnusable):
            await self._open_history()

    async def _open_history(self) -> None:
        """Read the journal if it is not open; report its last result, which may have been lost."""
        await self._history.open()
        if self._reported_last:
            return
        self._reported_last = True
        begun = self._history.seen.begun
        if begun is not None and self._is_of_this_boot(begun):
            self._executor.report_result()

    def _is_of_this_boot(self, begun: BegunOp) -> bool:
        return begun.ended_in == self._agent.boot_id or is_permanent(begun.command)

    async def run(self) -> None:
        """Execute commands and answer checks until cancelled."""
        await self.open()
        unwatch = self._bus.link.watch(self._link_changed)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(
                    watch_notifications(
                        bus=self._bus,
                        env=self._env,
                        pattern=subjects.notify(self._slot),
                        handler=self._notified,
                        on_subscribed=self._changed.set,
                    ),
                    name=f"notifications of {self._agent.component}",
                )
                tasks.create_task(self._read_slot(), name=f"slot of {self._agent.component}")
                tasks.create_task(self._executor.run(), name=f"ops of {self._agent.component}")
                tasks.create_task(self._checks.run(), name=f"checks of {self._agent.component}")
        finally:
            unwatch()

    # Reading the slot.

    async def read(self) -> Command | None:
        """Read the slot and return its command if it is accepted. Raise `BusError`."""
        async with self.slot_lock:
            slot = await self._reader.read()
            self.has_read_slot = True
            return None if slot is None else await self._accept(slot)

    async def _read_slot(self) -> None:
        backoff = Backoff(self._random)
        while True:
            self._changed.clear()
            try:
                await self.read()
            except BusError as error:
                self._read_error = str(error)
                wait = backoff.next()
            else:
                self._read_error = ""
                backoff.reset()
                wait = jittered(PERIOD, self._random)
            await wait_up_to(wait, self._changed)
            if self._reconnected:
                self._reconnected = False
                await self._clock.sleep(self._random.uniform(0.0, RECONNECT_SPREAD))

    def _notified(self, _subject: str, data: bytes, _reply: str) -> None:
        self._reader.notified(data)
        self._changed.set()

    def _link_changed(self, up: bool) -> None:
        if up:
            self._reconnected = True
            self._changed.set()

    # Accepting and refusing commands.

    async def _accept(self, slot: SlotValue[Command]) -> Command | None:
        command = slot.content
        if command is None:
            self.current = None
            self._report_malformed(slot)
            return None
        refusal = await self._find_refusal(command)
        if refusal is not None:
            if refusal.code not in OUTRANKED_CODES and not self._is_begun(command):
                self.current = None
                self._superseded_by = f"the slot holds a refused command: {refusal.message}"
                self._executor.commands_changed()
            await self.refuse(refusal)
            return None
        self._superseded_by = ""
        self.current = command
        if self._reader.has_changed and self._is_begun(command):
            self._executor.report_result()
        self._executor.commands_changed()
        return command

    async def _find_refusal(self, command: Command) -> Refusal | None:
        """Return why this command is refused. The epoch and order of any other are journalled."""
        try:
            await self._open_history()
        except JournalUnusable as error:
            return make_refusal(command, RefusalCode.JOURNAL, str(error))
        refusal = find_refusal(
            command,
            seen=self._history.seen,
            agent=self._agent,
            seconds_left=self.seconds_left(command),
        )
        if refusal is None:
            try:
                await self._history.record_seen(command)
            except JournalUnusable as error:
                return make_refusal(command, RefusalCode.JOURNAL, str(error))
        return refusal

    def seconds_left(self, command: Command) -> float:
        """Return how long this command may still be begun, by the clock that nobody sets.

        Counted from the first time that this process read it: the clocks of leader and node differ.
        """
        if self._start_by is None or self._start_by[0] != command.order:
            left = command.valid_seconds or command.deadline - self._clock.now()
            self._start_by = command.order, self._clock.monotonic() + left
        return self._start_by[1] - self._clock.monotonic()

    def _is_begun(self, command: Command) -> bool:
        begun = self._history.seen.begun
        is_of_node = is_for(command, node=self._agent.node, node_uid=self._agent.node_uid)
        return is_of_node and begun is not None and begun.order == command.order

    def superseded_by(self, order: Order) -> str:
        """Describe the command that is known to replace this op in the slot; empty if none."""
        if self._superseded_by:
            return self._superseded_by
        if self.current is not None and self.current.order != order:
            return f"the slot holds {self.current.kind} {self.current.order}"
        return ""

    async def refuse(self, refusal: Refusal) -> None:
        """Journal and report a refusal, unless it repeats the last one."""
        key = (refusal.epoch, refusal.order, refusal.code)
        if key == self._refused:
            return
        self._refused = key
        with suppress(JournalUnusable):
            await self._history.record_refused(refusal)
        self._reporter.report(refusal)

    def _report_malformed(self, slot: SlotValue[Command]) -> None:
        key = (slot.sequence, RefusalCode.UNREADABLE)
        if key != self._refused:
            self._refused = key
            self._reporter.report(Refusal(code=RefusalCode.UNREADABLE, message=slot.malformed))
