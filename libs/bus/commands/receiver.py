"""An agent's desk: it reads its slot, and what the slot says is done, once, or refused in words.

Order is in the command, (node uid, token, op). What is begun and how it ended is journalled before
anybody is told, so a restarted agent takes up what it had begun, and says again what it had ended.
What a command does is its handler's business.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from libs.bus.commands.checks import CheckHandler, CheckReceiver
from libs.bus.commands.executor import OpExecutor
from libs.bus.commands.history import EntryWatcher, OpHistory
from libs.bus.commands.op import CommandHandler
from libs.bus.commands.slot_reader import SlotReader, watch_notifications
from libs.bus.journal import Journal, JournalUnusable
from libs.bus.port import Bus, BusError
from libs.bus.reporter import RECONNECT_SPREAD, Reporter
from libs.bus.slots import SlotValue
from libs.contracts import subjects
from libs.contracts.admission import (
    OUTRANKED_CODES,
    AgentIdentity,
    BegunOp,
    find_refusal,
    is_permanent,
    make_refusal,
)
from libs.contracts.commands import CheckKind, Command, CommandKind, Order
from libs.contracts.reports import Outcome, Refusal, RefusalCode
from libs.runtime.backoff import Backoff, jittered
from libs.runtime.env import Env

PERIOD = 60.0
"""Seconds after which the slot is read without a poke, before jitter."""


class HighestSeen(NamedTuple):
    """The highest epoch, and the highest order, that were seen: a beat says them."""

    epoch: int
    token: int
    op: int


class CommandReceiver:
    """The desk of one component, in one boot of one node."""

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
    ) -> None:
        me = bus.identity
        self._env = env
        self._bus = bus
        self._clock = env.clock
        self._random = env.random
        self._reporter = reporter
        self._slot = subjects.Command(cluster=me.cluster, node=me.node, component=me.writer)
        self._place = AgentIdentity(
            node=me.node,
            node_uid=node_uid,
            boot_id=boot_id,
            component=me.writer,
            handles=tuple(handlers),
        )
        self._reader = SlotReader(bus=bus, env=env, slot=self._slot, kind=Command)
        self._record = OpHistory(journal=journal, clock=env.clock, agent=self._place)
        self._work = OpExecutor(
            link=bus.link,
            env=env,
            agent=self._place,
            source=self,
            record=self._record,
            reporter=reporter,
            handlers=handlers,
        )
        self._checks = CheckReceiver(
            bus=bus,
            env=env,
            reporter=reporter,
            node_uid=node_uid,
            boot_id=boot_id,
            handlers=checks,
        )
        self._bell = asyncio.Event()
        self._back = False
        self._remembered = False
        self._overruled = ""
        self._refused: tuple[object, ...] = ()
        self.known_kinds = tuple(sorted({*handlers, *checks}))
        """The kinds of command and check that it knows: a beat says them."""
        self.slot_lock = asyncio.Lock()
        """Whoever holds it sees the orders unchanged: the slot is read and judged under it."""
        self.current: Command | None = None
        """What the slot says, as read since this desk began; None while that is not known."""
        self._unread = ""

    @property
    def last_error(self) -> str:
        """Why the slot or the journal cannot be used now, in words; empty if both can."""
        return self._record.last_error or self._unread

    @property
    def highest(self) -> HighestSeen:
        """The highest epoch and order seen, also by earlier processes."""
        seen = self._record.seen
        return HighestSeen(seen.epoch, *seen.order)

    @property
    def command_in_effect(self) -> CommandKind | None:
        """The command whose effect stands: the last that was begun, if it is done, in this boot.

        It is known once the desk is open, before the bus is there: a component that was quiesced
        starts quiesced.
        """
        begun = self._record.seen.begun
        if begun is None or begun.result is None or begun.result.outcome is not Outcome.DONE:
            return None
        return CommandKind(begun.command) if self._is_of_this_boot(begun) else None

    def on_entry(self, watcher: EntryWatcher) -> None:
        """Call `watcher` with each entry from now on, once the journal keeps it."""
        self._record.watchers.append(watcher)

    async def open(self) -> None:
        """Read the journal. While it is refused it is tried again, and each command is refused."""
        with suppress(JournalUnusable):
            await self._open_record()

    async def _open_record(self) -> None:
        """Read the journal, if it was not; what it knows as ended, nobody may have heard."""
        await self._record.open()
        if self._remembered:
            return
        self._remembered = True
        begun = self._record.seen.begun
        if begun is not None and self._is_of_this_boot(begun):
            self._work.report_result()

    def _is_of_this_boot(self, begun: BegunOp) -> bool:
        return begun.ended_in == self._place.boot_id or is_permanent(begun.command)

    async def run(self) -> None:
        """Do what the slot says, and answer checks, until cancelled."""
        await self.open()
        unwatch = self._bus.link.watch(self._link_changed)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._hear(), name=f"pokes of {self._place.component}")
                tasks.create_task(self._listen(), name=f"slot of {self._place.component}")
                tasks.create_task(self._work.run(), name=f"ops of {self._place.component}")
                tasks.create_task(self._checks.run(), name=f"checks of {self._place.component}")
        finally:
            unwatch()

    # Reading.

    async def read(self) -> Command | None:
        """Read the slot now: its command, if that is taken. Raises what the bus raises."""
        async with self.slot_lock:
            slot = await self._reader.read()
            return None if slot is None else await self._take(slot)

    async def _hear(self) -> None:
        await watch_notifications(
            bus=self._bus,
            env=self._env,
            pattern=subjects.notify(self._slot),
            handler=self._poked,
            on_subscribed=self._bell.set,
        )

    async def _listen(self) -> None:
        backoff = Backoff(self._random)
        while True:
            self._bell.clear()
            try:
                await self.read()
            except BusError as error:
                self._unread = str(error)
                wait = backoff.next()
            else:
                self._unread = ""
                backoff.reset()
                wait = jittered(PERIOD, self._random)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._bell.wait()
            if self._back:
                self._back = False
                await self._clock.sleep(self._random.uniform(0.0, RECONNECT_SPREAD))

    def _poked(self, _subject: str, data: bytes, _reply: str) -> None:
        self._reader.notified(data)
        self._bell.set()

    def _link_changed(self, up: bool) -> None:
        if up:
            self._back = True
            self._bell.set()

    # Taking and refusing.

    async def _take(self, slot: SlotValue[Command]) -> Command | None:
        command = slot.content
        if command is None:
            self.current = None
            self._say_unreadable(slot)
            return None
        refused = await self._judge(command)
        if refused is not None:
            if refused.code not in OUTRANKED_CODES and not self._is_begun(command):
                self.current = None
                self._overruled = f"the slot holds what was refused: {refused.message}"
                self._work.commands_changed()
            await self.refuse(refused)
            return None
        self._overruled = ""
        self.current = command
        if self._reader.has_changed:
            self._say_again(command)
        self._work.commands_changed()
        return command

    async def _judge(self, command: Command) -> Refusal | None:
        """Why this command is not taken. What it shows of epoch and order is journalled first."""
        try:
            await self._open_record()
        except JournalUnusable as error:
            return make_refusal(command, RefusalCode.JOURNAL, str(error))
        refused = find_refusal(
            command, seen=self._record.seen, agent=self._place, now=self._clock.now()
        )
        if refused is None:
            try:
                await self._record.record_seen(command)
            except JournalUnusable as error:
                return make_refusal(command, RefusalCode.JOURNAL, str(error))
        return refused

    def _is_begun(self, command: Command) -> bool:
        begun = self._record.seen.begun
        mine = command.node_uid == self._place.node_uid
        return mine and begun is not None and begun.order == command.order

    def _say_again(self, command: Command) -> None:
        if self._is_begun(command):
            self._work.report_result()

    def superseded_by(self, order: Order) -> str:
        """What the slot says instead of this op, in words; empty if it is not known to."""
        if self._overruled:
            return self._overruled
        if self.current is not None and self.current.order != order:
            return f"the slot holds {self.current.kind} {self.current.order}"
        return ""

    async def refuse(self, refused: Refusal) -> None:
        """Say that a command is not taken, and why; not again while that is the last refusal."""
        which = (refused.epoch, refused.order, refused.code)
        if which == self._refused:
            return
        self._refused = which
        with suppress(JournalUnusable):
            await self._record.record_refused(refused)
        self._reporter.report(refused)

    def _say_unreadable(self, slot: SlotValue[Command]) -> None:
        which = (slot.sequence, RefusalCode.UNREADABLE)
        if which != self._refused:
            self._refused = which
            self._reporter.report(Refusal(code=RefusalCode.UNREADABLE, message=slot.malformed))
