"""A running op as its handler sees it, and the results of a handler."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from libs.contracts.commands import Command, CommandBody


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
        self,
        *,
        command: Command,
        resumed: bool,
        steps: tuple[str, ...],
        away: float,
        confirm: Callable[["Op", str], Awaitable[None]],
        raise_if_superseded: Callable[["Op"], None],
        progress: Callable[["Op", str, str], None],
    ) -> None:
        self.command = command
        self.body: CommandBody = command.open()
        self.is_resumed = resumed
        """Whether an earlier process started it and did not finish it."""
        self.steps = steps
        """The steps in the journal."""
        self.down_seconds_before = away
        """`BusLink.down_seconds` when this process started or resumed the op."""
        self._confirm = confirm
        self._raise_if_superseded = raise_if_superseded
        self._progress = progress

    async def checkpoint(self, step: str) -> None:
        """Return once the slot is confirmed to hold this op and the step is journalled.

        Await this before each irreversible step. Raise `OpSuperseded` if the slot holds another
        command. Wait while the slot cannot be read; raise `OpDeadlineExceeded` past the deadline,
        which is extended by the time for which the bus is unavailable. Let both exceptions pass.
        """
        await self._confirm(self, step)

    def raise_if_superseded(self) -> None:
        """Raise `OpSuperseded` if the slot is known to hold another command. Never waits."""
        self._raise_if_superseded(self)

    def progress(self, phase: str, detail: str = "") -> None:
        """Report the current phase, and what it waits for."""
        self._progress(self, phase, detail)


CommandHandler: TypeAlias = Callable[[Op], Awaitable[OpDone | OpFailed]]
"""Executes ops of one kind; for a resumed op it must find out itself what is done already."""
