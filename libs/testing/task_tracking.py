"""Track tasks, async generators and unhandled errors of a virtual loop.

asyncio only logs such errors at a garbage collection; a simulation fails on them.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable
from contextvars import Context
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from libs.testing.errors import TaskFailed


class TaskTracking(asyncio.AbstractEventLoop):
    """The part of a loop that tracks tasks, async generators and failures."""

    def __init__(self) -> None:
        self._tasks: weakref.WeakValueDictionary[int, asyncio.Task[Any]] = (
            weakref.WeakValueDictionary()
        )
        self._asyncgens: weakref.WeakValueDictionary[int, AsyncGenerator[Any, Any]] = (
            weakref.WeakValueDictionary()
        )
        self._asyncgens_begun = 0
        self._failures: list[TaskFailed] = []

    def pending(self) -> list[asyncio.Task[Any]]:
        """Return the unfinished tasks, oldest first."""
        return [task for _, task in sorted(self._tasks.items()) if not task.done()]

    def unhandled_failures(self) -> list[TaskFailed]:
        """Return and forget the failures whose errors were never retrieved."""
        for _, task in sorted(self._tasks.items()):
            # The public `exception()` does not show whether the error was retrieved before.
            if task._log_traceback:  # pyright: ignore[reportPrivateUsage]
                self._record_failure(
                    "task failed and its error was never retrieved",
                    task.get_name(),
                    task.exception(),
                )
        found, self._failures = self._failures, []
        return found

    def _record_failure(self, what: str, task_name: str, cause: object) -> None:
        failure = TaskFailed(
            f"{what}: {task_name}: {cause!r}" if cause is not None else f"{what}: {task_name}"
        )
        failure.__cause__ = cause if isinstance(cause, BaseException) else None
        self._failures.append(failure)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the failure for `unhandled_failures`."""
        task = context.get("task") or context.get("future")
        task_name = task.get_name() if isinstance(task, asyncio.Task) else "no task"
        self._record_failure(str(context["message"]), task_name, context.get("exception"))

    def get_debug(self) -> bool:
        return False

    def asyncgen_started(self, agen: AsyncGenerator[Any, Any]) -> None:
        """The interpreter's hook for an async generator's first step."""
        self._asyncgens_begun += 1
        self._asyncgens[self._asyncgens_begun] = agen

    def asyncgen_dropped(self, agen: AsyncGenerator[Any, Any]) -> None:
        """The interpreter's hook for an abandoned async generator: run its `finally`."""
        if not self.is_closed():
            self.create_task(agen.aclose(), name=f"aclose of {_name(agen)}")

    async def shutdown_asyncgens(self) -> None:
        """Close open async generators, oldest first."""
        still_open = [agen for _, agen in sorted(self._asyncgens.items())]
        self._asyncgens.clear()
        closing = (agen.aclose() for agen in still_open)
        results = await asyncio.gather(*closing, return_exceptions=True)
        for agen, result in zip(still_open, results, strict=True):
            if isinstance(result, BaseException):
                self._record_failure("an async generator failed to close", _name(agen), result)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        pass


def _name(agen: AsyncGenerator[Any, Any]) -> str:
    return str(getattr(agen, "__qualname__", type(agen).__qualname__))


T = TypeVar("T")


class CountedTask(asyncio.Task[T]):
    """A task that hashes by its number, so that sets of tasks have the same order in every run."""

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
    """Like `CountedTask`; the loop sets the number right after the constructor."""

    number = 0

    def __hash__(self) -> int:
        return self.number


_ASYNCIO = str(Path(asyncio.__file__).parent)


def describe_waiting(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """Describe each task in a line: its innermost line outside asyncio, and what it awaits."""
    return "\n".join(f"  {task.get_name()}: {_position(task.get_coro())}" for task in tasks)


def _position(awaited: object) -> str:
    own: FrameType | None = None
    inner: FrameType | None = None
    while awaited is not None:
        frame = _first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if isinstance(frame, FrameType):
            if not frame.f_code.co_filename.startswith(_ASYNCIO):
                own, inner = frame, None
            elif inner is None:
                inner = frame
        awaited = _first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
    if own is None:
        return "not started, or inside asyncio only"
    code = own.f_code
    what = "a future" if inner is None else inner.f_code.co_qualname
    return f"{code.co_qualname} ({Path(code.co_filename).name}:{own.f_lineno}) awaits {what}"


def _first(awaited: object, *names: str) -> object:
    """Return the first of these attributes that is set: the names differ by kind of coroutine."""
    found = (getattr(awaited, name, None) for name in names)
    return next((each for each in found if each is not None), None)
