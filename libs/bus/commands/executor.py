"""The doing of what the slot says: one op at a time, each begun once and ended once.

Knows which command counts now only by asking; reading and refusing are the desk's.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from libs.bus.commands.history import OpHistory
from libs.bus.commands.op import (
    CommandHandler,
    Op,
    OpDeadlineExceeded,
    OpDone,
    OpFailed,
    OpSuperseded,
)
from libs.bus.journal import JournalUnusable
from libs.bus.port import BusError, BusLink
from libs.bus.reporter import Reporter
from libs.contracts.admission import (
    AgentIdentity,
    BegunOp,
    expiry_refusal,
    is_permanent,
    make_refusal,
)
from libs.contracts.commands import Command, CommandKind, Order
from libs.contracts.reports import Outcome, Progress, Refusal, RefusalCode, Result, StateKind
from libs.runtime.backoff import Backoff
from libs.runtime.env import Env
from libs.runtime.fatal import describe_error


class CommandSource(Protocol):
    """The desk, as far as the work needs it."""

    current: Command | None
    slot_lock: asyncio.Lock
    """Whoever holds it sees the orders unchanged."""

    def superseded_by(self, order: Order) -> str:
        """What the slot says instead of this op, in words; empty if it is not known to."""
        ...

    async def read(self) -> Command | None:
        """Read the slot again: the command that it holds, if that was taken."""
        ...

    async def refuse(self, refused: Refusal) -> None:
        """Say that a command is not taken."""
        ...


MAX_MESSAGE_LENGTH = 4_000
"""Letters of a result's message that are kept: an installer's whole output is for its log."""


class OpExecutor:
    """Carries out the orders of one desk."""

    def __init__(
        self,
        *,
        link: BusLink,
        env: Env,
        agent: AgentIdentity,
        source: CommandSource,
        record: OpHistory,
        reporter: Reporter,
        handlers: Mapping[CommandKind, CommandHandler],
    ) -> None:
        self._link = link
        self._clock = env.clock
        self._random = env.random
        self._place = agent
        self._orders = source
        self._record = record
        self._reporter = reporter
        self._handlers = handlers
        self._running: Op | None = None
        self._said: Progress | None = None
        self._bell = asyncio.Event()

    def commands_changed(self) -> None:
        """The orders may be others by now. A running op is adopted for whoever leads."""
        current = self._orders.current
        running = self._running
        if running and current and running.command.order == current.order:
            running.command = current
        self._bell.set()

    def report_result(self) -> None:
        """Report the last result again: nobody may have heard it."""
        begun = self._record.seen.begun
        if begun is not None and begun.result is not None:
            self._reporter.report(begun.result)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            while await self._next():
                pass
            await self._bell.wait()
            self._bell.clear()

    async def _next(self) -> bool:
        """Do what is next; whether there may be more to do."""
        begun = self._record.seen.begun
        if begun is not None and begun.result is None and (ended := self._ended(begun)):
            await self._finish(begun, begun.epoch, ended)
            return True
        command = self._orders.current
        if command is None:
            return False
        if begun is not None and begun.order == command.order and begun.result is not None:
            return False
        # At most one result is not acknowledged, and it is the journal's last: so none is lost.
        await self._reporter.flush(StateKind.RESULT)
        async with self._orders.slot_lock:
            if self._orders.current is not command:
                return True
            taken = await self._take_up(command)
        if isinstance(taken, Refusal):
            await self._orders.refuse(taken)
        else:
            await self._carry_out(*taken)
        return True

    def _ended(self, begun: BegunOp) -> OpFailed | OpSuperseded | None:
        """How an op ended that an earlier process began, if it cannot be taken up again."""
        if begun.boot_id != self._place.boot_id and not is_permanent(begun.command):
            return OpFailed("reboot", f"it was under way in boot {begun.boot_id}, which is over")
        instead = self._orders.superseded_by(begun.order)
        return OpSuperseded(instead) if instead else None

    async def _take_up(self, command: Command) -> tuple[BegunOp, Op] | Refusal:
        """Journal the start, unless an earlier process did; while the orders stay what they are."""
        begun = self._record.seen.begun
        resumed = begun is not None and begun.order == command.order
        if begun is None or begun.order != command.order:
            begun = await self._begin(command)
        if isinstance(begun, Refusal):
            self._orders.current = None
            return begun
        op = self._running = Op(
            command=command,
            resumed=resumed,
            steps=begun.steps,
            away=self._link.down_seconds,
            confirm=self._confirm,
            heed=self._heed,
            progress=self._progress,
        )
        return begun, op

    async def _begin(self, command: Command) -> BegunOp | Refusal:
        if refused := expiry_refusal(command, self._record.seen, self._clock.now()):
            return refused
        try:
            return await self._record.record_started(command)
        except JournalUnusable as error:
            return make_refusal(command, RefusalCode.JOURNAL, str(error))

    async def _carry_out(self, begun: BegunOp, op: Op) -> None:
        ended = await self._ending(op)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError  # the handler kept it to itself; the op is resumed later
        self._running = None
        await self._finish(begun, op.command.epoch, ended)

    async def _ending(self, op: Op) -> OpDone | OpFailed | OpSuperseded:
        try:
            return await self._handlers[op.command.kind](op)
        except OpSuperseded as superseded:
            return superseded
        except OpDeadlineExceeded as error:
            return OpFailed("deadline", str(error))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return OpFailed("defect", "something that it waited for was cancelled")
        except Exception as error:  # noqa: BLE001  (a defect too is a result: the op was begun)
            return OpFailed("defect", describe_error(error))

    async def _finish(
        self, begun: BegunOp, epoch: int, ended: OpDone | OpFailed | OpSuperseded
    ) -> None:
        result = Result(
            epoch=epoch,
            token=begun.order.token,
            op=begun.order.op,
            command=begun.command,
            outcome=_outcome(ended),
            code=ended.code if isinstance(ended, OpFailed) else "",
            message=(str(ended) if isinstance(ended, OpSuperseded) else ended.message)[
                :MAX_MESSAGE_LENGTH
            ],
            started=begun.started,
            finished=self._clock.now(),
        )
        backoff = Backoff(self._random)
        while True:
            try:
                await self._record.record_finished(begun, result)
            except JournalUnusable as error:
                self._say(result.epoch, begun.command, begun.order, "journal", str(error))
                await self._clock.sleep(backoff.next())
            else:
                break
        self._reporter.report(result)

    # What an op asks of the desk.

    async def _confirm(self, op: Op, step: str) -> None:
        backoff = Backoff(self._random, first=0.5, cap=5.0)
        while why := await self._unconfirmed(op, step):
            away = self._link.down_seconds - op.down_seconds_before
            late = self._clock.now() - op.command.deadline - away
            if late > 0:
                raise OpDeadlineExceeded(
                    f"{step} was not begun: {why}, until {late:.0f} s after the deadline, with"
                    f" {away:.0f} s granted for a bus that was away; look there, and retry"
                )
            self._progress(op, step, f"waits: {why}")
            await self._clock.sleep(backoff.next())

    async def _unconfirmed(self, op: Op, step: str) -> str:
        """Why the sub-step may not be taken yet; empty once it is journalled."""
        self._heed(op)
        try:
            taken = await self._orders.read()
        except BusError as error:
            return f"its slot cannot be read ({error})"
        self._heed(op)
        if taken is None or taken.order != op.command.order:
            return f"its slot does not hold {op.command.order}"
        try:
            await self._record.record_step(op.command, step)
        except JournalUnusable as error:
            return str(error)
        self._heed(op)
        return ""

    def _heed(self, op: Op) -> None:
        if instead := self._orders.superseded_by(op.command.order):
            raise OpSuperseded(instead)

    def _progress(self, op: Op, phase: str, detail: str) -> None:
        self._say(op.command.epoch, op.command.kind, op.command.order, phase, detail)

    def _say(self, epoch: int, command: str, order: Order, phase: str, detail: str) -> None:
        last = self._said
        same_phase = last is not None and (last.order, last.phase) == (order, phase)
        progress = Progress(
            epoch=epoch,
            token=order.token,
            op=order.op,
            command=command,
            phase=phase,
            detail=detail,
            since=last.since if last is not None and same_phase else self._clock.now(),
        )
        if progress != last:
            self._said = progress
            self._reporter.report(progress)


def _outcome(ended: OpDone | OpFailed | OpSuperseded) -> Outcome:
    if isinstance(ended, OpDone):
        return Outcome.DONE
    return Outcome.FAILED if isinstance(ended, OpFailed) else Outcome.SUPERSEDED
