"""Execute the command in the slot: one op at a time, each started once and finished once.

`Op` is a running op as its handler sees it; the handler returns `OpDone` or `OpFailed`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Protocol, TypeAlias

import msgspec

from libs.bus.journal import JournalUnusable, OpHistory
from libs.bus.port import BusError, BusLink
from libs.bus.reporter import Reporter
from libs.contracts.admission import (
    AgentIdentity,
    BegunOp,
    expiry_refusal,
    is_permanent,
    make_refusal,
)
from libs.contracts.commands import Command, CommandBody, CommandKind, Order
from libs.contracts.reports import Outcome, Progress, Refusal, RefusalCode, Result, StateKind
from libs.runtime.clock import Backoff
from libs.runtime.env import Env
from libs.runtime.fatal import describe_error

MAX_MESSAGE_LENGTH = 4_000
"""Characters of a result's message that are kept; an installer's full output is in its log."""


class CommandSource(Protocol):
    """The part of `CommandReceiver` that the executor calls."""

    current: Command | None
    slot_lock: asyncio.Lock

    def superseded_by(self, order: Order) -> str: ...

    async def read(self) -> Command | None: ...

    async def refuse(self, refusal: Refusal) -> None: ...

    def seconds_left(self, command: Command) -> float: ...


class OpDone(msgspec.Struct, frozen=True):
    message: str = ""


class OpFailed(msgspec.Struct, frozen=True):
    """The op failed; `code` is one word for the cause."""

    code: str
    message: str


class OpSuperseded(Exception):
    """The slot holds another command. Handlers must let this pass; it is not a failure."""


class OpDeadlineExceeded(Exception):
    """The slot could not be read, or was empty, until after the op's deadline."""


class Op:
    """One op. `command` is replaced while it runs if a newer leader repeats the order."""

    def __init__(
        self, command: Command, executor: "OpExecutor", *, late_at: float, down_seconds: float
    ) -> None:
        self.command = command
        self.body: CommandBody = command.open()
        self.late_at = late_at
        """When its deadline passes, by the monotonic clock."""
        self.down_seconds_before = down_seconds
        """`BusLink.down_seconds` when this process started or resumed the op."""
        self._executor = executor

    async def checkpoint(self, step: str) -> None:
        """Return once the slot is confirmed to hold this op and the step is journalled.

        Await this before each irreversible step. Raise `OpSuperseded` if the slot holds another
        command. Wait while the slot cannot be read; raise `OpDeadlineExceeded` past the deadline,
        which is extended by the time for which the bus is unavailable. Let both exceptions pass.
        """
        await self._executor.confirm(self, step)

    async def record(self, outcome: str) -> None:
        """Journal how a step ended, for audits; an unusable journal does not hold the op up."""
        await self._executor.record(self, outcome)

    @property
    def is_late(self) -> bool:
        """Whether its deadline has passed."""
        return self._executor.seconds_late(self) >= 0

    def raise_if_superseded(self) -> None:
        """Raise `OpSuperseded` if the slot is known to hold another command. Never waits."""
        self._executor.raise_if_superseded(self)

    def progress(self, phase: str, detail: str = "") -> None:
        """Report the current phase, and what it waits for."""
        self._executor.progress(self, phase, detail)


CommandHandler: TypeAlias = Callable[[Op], Awaitable[OpDone | OpFailed]]
"""Execute ops of one kind; the handler of a resumed op must find out which steps are done."""

BeforeStart: TypeAlias = Callable[[Command], Awaitable[None]]
"""Called before the start of an op is journalled; `JournalUnusable` refuses the command."""


async def do_nothing_before_start(_command: Command) -> None:
    """Let the op start."""


class OpExecutor:
    def __init__(
        self,
        *,
        link: BusLink,
        env: Env,
        agent: AgentIdentity,
        receiver: CommandSource,
        history: OpHistory,
        reporter: Reporter,
        handlers: Mapping[CommandKind, CommandHandler],
        before_start: BeforeStart,
    ) -> None:
        self._link = link
        self._clock = env.clock
        self._random = env.random
        self._agent = agent
        self._receiver = receiver
        self._history = history
        self._reporter = reporter
        self._handlers = handlers
        self._before_start = before_start
        self._running: Op | None = None
        self._last_progress: Progress | None = None
        self._changed = asyncio.Event()

    def commands_changed(self) -> None:
        """Read the current command again; a running op is adopted by the newest leader."""
        current = self._receiver.current
        running = self._running
        if running and current and running.command.order == current.order:
            running.command = current
        self._changed.set()

    def report_result(self) -> None:
        """Report the last result again, in case it was lost."""
        begun = self._history.seen.begun
        if begun is not None and begun.result is not None:
            self._reporter.report(begun.result)

    async def run(self) -> None:
        """Execute commands until cancelled."""
        while True:
            while await self._next():
                pass
            await self._changed.wait()
            self._changed.clear()

    async def _next(self) -> bool:
        """Execute or refuse the current command; return whether to call this again at once."""
        begun = self._history.seen.begun
        if begun is not None and begun.result is None and (ended := self._ended_meanwhile(begun)):
            await self._finish(begun, begun.epoch, ended)
            return True
        command = self._receiver.current
        if command is None:
            return False
        if begun is not None and begun.order == command.order and begun.result is not None:
            return False
        # Only the journal's last result is reported after a restart, so store each before the next.
        await self._reporter.flush(StateKind.RESULT)
        async with self._receiver.slot_lock:
            if self._receiver.current is not command:
                return True
            started = await self._start(command)
        if isinstance(started, Refusal):
            await self._receiver.refuse(started)
        else:
            await self._execute(*started)
        return True

    def _ended_meanwhile(self, begun: BegunOp) -> OpFailed | OpSuperseded | None:
        """Return how an op of an earlier process ended, or None if it can be resumed."""
        if begun.boot_id != self._agent.boot_id and not is_permanent(begun.command):
            return OpFailed(
                "reboot",
                f"the node rebooted during the op, which was started in boot {begun.boot_id}",
            )
        superseded_by = self._receiver.superseded_by(begun.order)
        return OpSuperseded(superseded_by) if superseded_by else None

    async def _start(self, command: Command) -> tuple[BegunOp, Op] | Refusal:
        """Journal the start, unless an earlier process did. Call with `slot_lock` held."""
        begun = self._history.seen.begun
        if begun is None or begun.order != command.order:
            begun = await self._begin(command)
            if isinstance(begun, Refusal):
                self._receiver.current = None
                return begun
        late_at = self._clock.monotonic() + self._receiver.seconds_left(command)
        self._running = Op(command, self, late_at=late_at, down_seconds=self._link.down_seconds)
        return begun, self._running

    async def _begin(self, command: Command) -> BegunOp | Refusal:
        left = self._receiver.seconds_left(command)
        if refusal := expiry_refusal(command, self._history.seen, left):
            return refusal
        try:
            await self._before_start(command)
            return await self._history.record_started(command)
        except JournalUnusable as error:
            return make_refusal(command, RefusalCode.JOURNAL, str(error))

    async def _execute(self, begun: BegunOp, op: Op) -> None:
        ended = await self._run_handler(op)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # The handler caught the cancellation; the op is resumed later.
            raise asyncio.CancelledError
        self._running = None
        await self._finish(begun, op.command.epoch, ended)

    async def _run_handler(self, op: Op) -> OpDone | OpFailed | OpSuperseded:
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
            return OpFailed("defect", "a task of the handler was cancelled")
        except Exception as error:  # noqa: BLE001  (the op was begun, so a defect is its result)
            return OpFailed("defect", describe_error(error))

    async def _finish(
        self, begun: BegunOp, epoch: int, ended: OpDone | OpFailed | OpSuperseded
    ) -> None:
        outcome, code, message = _outcome(ended)
        result = Result(
            epoch=epoch,
            token=begun.order.token,
            op=begun.order.op,
            command=begun.command,
            outcome=outcome,
            code=code,
            message=message[:MAX_MESSAGE_LENGTH],
            started=begun.started,
            finished=self._clock.now(),
        )
        backoff = Backoff(self._random)
        while True:
            try:
                await self._history.record_finished(result)
            except JournalUnusable as error:
                self._report_progress(result, begun.command, "journal", str(error))
                await self._clock.sleep(backoff.next())
            else:
                break
        self._reporter.report(result)

    # Called by an op.

    async def confirm(self, op: Op, step: str) -> None:
        backoff = Backoff(self._random, first=0.5, cap=5.0)
        while why := await self._unconfirmed(op, step):
            outage = self._link.down_seconds - op.down_seconds_before
            late = self.seconds_late(op) - outage
            if late > 0:
                raise OpDeadlineExceeded(
                    f"{step} was not started: {why}, until {late:.0f} s after the deadline, which"
                    f" was extended by {outage:.0f} s of bus outage; fix that and retry"
                )
            self.progress(op, step, f"waiting: {why}")
            await self._clock.sleep(backoff.next())

    def seconds_late(self, op: Op) -> float:
        return self._clock.monotonic() - op.late_at

    async def _unconfirmed(self, op: Op, step: str) -> str:
        """Return why the step may not start yet; empty once the step is journalled."""
        self.raise_if_superseded(op)
        try:
            command = await self._receiver.read()
        except BusError as error:
            return f"the command slot cannot be read ({error})"
        self.raise_if_superseded(op)
        if command is None or command.order != op.command.order:
            return f"the command slot does not hold {op.command.order}"
        try:
            await self._history.record_step(op.command, step)
        except JournalUnusable as error:
            return str(error)
        self.raise_if_superseded(op)
        return ""

    async def record(self, op: Op, outcome: str) -> None:
        with suppress(JournalUnusable):
            await self._history.record_step(op.command, outcome)

    def raise_if_superseded(self, op: Op) -> None:
        if superseded_by := self._receiver.superseded_by(op.command.order):
            raise OpSuperseded(superseded_by)

    def progress(self, op: Op, phase: str, detail: str) -> None:
        self._report_progress(op.command, op.command.kind, phase, detail)

    def _report_progress(
        self, source: Command | Result, command: str, phase: str, detail: str
    ) -> None:
        last = self._last_progress
        same_phase = last is not None and (last.order, last.phase) == (source.order, phase)
        progress = Progress(
            epoch=source.epoch,
            token=source.token,
            op=source.op,
            command=command,
            phase=phase,
            detail=detail,
            since=last.since if last is not None and same_phase else self._clock.now(),
        )
        if progress != last:
            self._last_progress = progress
            self._reporter.report(progress)


def _outcome(ended: OpDone | OpFailed | OpSuperseded) -> tuple[Outcome, str, str]:
    """Return an op's outcome, the code of its failure, and the message."""
    match ended:
        case OpDone(message=message):
            return Outcome.DONE, "", message
        case OpFailed(code=code, message=message):
            return Outcome.FAILED, code, message
        case OpSuperseded():
            return Outcome.SUPERSEDED, "", str(ended)
