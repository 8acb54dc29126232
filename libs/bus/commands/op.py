"""An op under way, as its handler sees it, and what a handler answers.

What an op does is the component's business; whether it may go on is the slot's.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

import msgspec

from libs.contracts.commands import Command, CommandBody


class OpDone(msgspec.Struct, frozen=True):
    """The op did what it was told."""

    message: str = ""


class OpFailed(msgspec.Struct, frozen=True):
    """The op ended otherwise: one word for the cause, and a sentence."""

    code: str
    message: str


class OpSuperseded(Exception):
    """The slot says something else by now. A handler lets it pass; it is no failure."""


class OpDeadlineExceeded(Exception):
    """The slot could not be read, or was not there, until after the op's deadline."""


class ConfirmStep(Protocol):
    """What the desk does at a checkpoint."""

    def __call__(self, op: "Op", step: str, /) -> Awaitable[None]: ...


class Op:
    """One op. The desk makes it, and adopts it for a newer leader while it runs."""

    def __init__(
        self,
        *,
        command: Command,
        resumed: bool,
        steps: tuple[str, ...],
        away: float,
        confirm: ConfirmStep,
        heed: Callable[["Op"], None],
        progress: Callable[["Op", str, str], None],
    ) -> None:
        self.command = command
        self.body: CommandBody = command.open()
        self.is_resumed = resumed
        """An earlier process began it, and did not end it."""
        self.steps = steps
        """The sub-steps that the journal has of it."""
        self.down_seconds_before = away
        """The link's time away when this process took it up."""
        self._confirm = confirm
        self._heed = heed
        self._progress = progress

    async def checkpoint(self, step: str) -> None:
        """Return when this sub-step may be taken: the slot still says so, and it is journalled.

        To be awaited before each sub-step that cannot be taken back. Raises `Superseded`; waits
        while the slot cannot be read, and then raises `OutOfTime` past the deadline, which grows by
        the time that the bus is away. Let both pass.
        """
        await self._confirm(self, step)

    def raise_if_superseded(self) -> None:
        """Raise `Superseded` if the slot is known to say something else: for an op that waits."""
        self._heed(self)

    def progress(self, phase: str, detail: str = "") -> None:
        """Say what is being done now, and what it waits for."""
        self._progress(self, phase, detail)


CommandHandler: TypeAlias = Callable[[Op], Awaitable[OpDone | OpFailed]]
"""Carries out ops of one kind. A resumed op is carried out again from where its own traces show."""
