"""What a virtual loop must know at its end: tasks that did not finish, failures nobody looked at.

asyncio logs both some time, when garbage is collected; a simulation fails by them. Knows nothing of
time or of the order of steps.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from contextvars import Context
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from libs.testing.errors import TaskFailed

_Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class TaskTracking(asyncio.AbstractEventLoop):
    """The part of a loop that remembers tasks, async generators and complaints."""

    def __init__(self) -> None:
        self._tasks: weakref.WeakValueDictionary[int, asyncio.Task[Any]] = (
            weakref.WeakValueDictionary()
        )
        self._asyncgens: weakref.WeakValueDictionary[int, AsyncGenerator[Any, Any]] = (
            weakref.WeakValueDictionary()
        )
        self._asyncgens_begun = 0
        self._complaints: list[TaskFailed] = []
        self._handler: _Handler | None = None
        self._debug = False

    # Tasks.

    def pending(self) -> list[asyncio.Task[Any]]:
        """The tasks that are not done, oldest first."""
        return [task for _, task in sorted(self._tasks.items()) if not task.done()]

    def unhandled_failures(self) -> list[TaskFailed]:
        """What failed and nobody looked at, since the last call."""
        for _, task in sorted(self._tasks.items()):
            # The public `exception()` would say the same, but not whether anybody asked before.
            if task._log_traceback:  # pyright: ignore[reportPrivateUsage]
                self._complain("task failed and nobody looked", task.get_name(), task.exception())
        found, self._complaints = self._complaints, []
        return found

    def _complain(self, what: str, who: str, cause: object) -> None:
        complaint = TaskFailed(
            f"{what}: {who}: {cause!r}" if cause is not None else f"{what}: {who}"
        )
        complaint.__cause__ = cause if isinstance(cause, BaseException) else None
        self._complaints.append(complaint)

    # asyncio's way to say that something failed.

    def get_exception_handler(self) -> _Handler | None:
        """Who was told to hear complaints instead of the run."""
        return self._handler

    def set_exception_handler(self, handler: _Handler | None) -> None:
        """Who hears complaints instead of the run."""
        self._handler = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Called by tasks, futures and handles."""
        if self._handler is None:
            self.default_exception_handler(context)
        else:
            self._handler(self, context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Kept until `complaints` asks."""
        task = context.get("task") or context.get("future")
        who = task.get_name() if isinstance(task, asyncio.Task) else "no task"
        self._complain(str(context["message"]), who, context.get("exception"))

    def get_debug(self) -> bool:
        """asyncio's debug mode: handles and futures remember where they were made."""
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        """Set by `asyncio.Runner`."""
        self._debug = enabled

    # Async generators that nobody closed.

    def asyncgen_started(self, agen: AsyncGenerator[Any, Any]) -> None:
        """The interpreter's hook at the first step of one."""
        self._asyncgens_begun += 1
        self._asyncgens[self._asyncgens_begun] = agen

    def asyncgen_dropped(self, agen: AsyncGenerator[Any, Any]) -> None:
        """The interpreter's hook where one is given up in the middle: its `finally` runs now."""
        if not self.is_closed():
            self.create_task(agen.aclose(), name=f"aclose of {_name(agen)}")

    async def shutdown_asyncgens(self) -> None:
        """Close those that are still open, oldest first."""
        still_open = [agen for _, agen in sorted(self._asyncgens.items())]
        self._asyncgens.clear()
        closing = (agen.aclose() for agen in still_open)
        results = await asyncio.gather(*closing, return_exceptions=True)
        for agen, result in zip(still_open, results, strict=True):
            if isinstance(result, BaseException):
                self._complain("an async generator failed to close", _name(agen), result)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""


def _name(agen: AsyncGenerator[Any, Any]) -> str:
    return str(getattr(agen, "__qualname__", type(agen).__qualname__))


T = TypeVar("T")


class CountedTask(asyncio.Task[T]):
    """Two of one loop have different numbers, and the same ones in every run."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        number: int,
        loop: asyncio.AbstractEventLoop,
        name: str,
        context: Context | None,
    ) -> None:
        self._number = number  # first: the base class puts the task into a weak set
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number


class CountedFuture(asyncio.Future[Any]):
    """The loop gives the number right after making it; a future is in no set before."""

    number = 0

    def __hash__(self) -> int:
        return self.number


_ASYNCIO = str(Path(asyncio.__file__).parent)


def describe_waiting(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """One line per task: its name, its innermost line outside asyncio, what it awaits there."""
    return "\n".join(f"  {task.get_name()}: {_place(task.get_coro())}" for task in tasks)


def _place(awaited: object) -> str:
    ours: FrameType | None = None
    theirs: FrameType | None = None
    while awaited is not None:
        frame = _first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if isinstance(frame, FrameType):
            if not frame.f_code.co_filename.startswith(_ASYNCIO):
                ours, theirs = frame, None
            elif theirs is None:
                theirs = frame
        awaited = _first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
    if ours is None:
        return "not started, or inside asyncio only"
    code = ours.f_code
    what = "a future" if theirs is None else theirs.f_code.co_qualname
    return f"{code.co_qualname} ({Path(code.co_filename).name}:{ours.f_lineno}) awaits {what}"


def _first(awaited: object, *names: str) -> object:
    """Coroutines, generators and async generators have the same thing under three names."""
    found = (getattr(awaited, name, None) for name in names)
    return next((each for each in found if each is not None), None)
