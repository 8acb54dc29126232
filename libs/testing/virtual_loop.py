"""The virtual-time event loop: when nothing is ready, time jumps to the next timer.

The same program takes the same steps in every process: timers of one instant fire in the order they
were set, tasks and futures hash by a number, garbage is collected at fixed step counts, and the
real machine is out of reach: a virtual sleep beside a real thread or socket would make every run
different. Use it through `libs.testing.simulation.run`.
"""

import asyncio
import gc
import heapq
import itertools
import sys
from asyncio.events import (  # exported for authors of loops
    _get_running_loop,  # pyright: ignore[reportPrivateUsage]
    _set_running_loop,  # pyright: ignore[reportPrivateUsage]
)
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import Context
from threading import get_ident
from typing import Any, ClassVar, NoReturn, TypeVar, cast

from libs.testing.errors import Deadlock, Livelock, NotSimulated, VirtualTimeExceeded
from libs.testing.task_tracking import CountedFuture, CountedTask, TaskTracking, describe_waiting

_THREADS = (
    "there are no threads: call it inline, through a port that uses a thread only outside of here"
)
_SOCKETS = (
    "there are no sockets: use the in-process transports, or run this on a real loop "
    "with a server of its own"
)
_PROCESSES = "there are no processes: give it a port with a simulated one, or run it on a real loop"
_SIGNALS = "there are no signals: they belong to the process, call what the handler would call"
_FACTORY = "its tasks hash by a count, and another factory would undo that"


def unsupported_message(what: str, why: str) -> NotSimulated:
    return NotSimulated(f"{what} was tried in virtual time; {why}")


def _refusal(name: str, why: str) -> Any:
    def refuse(_self: object, *args: object, **named: object) -> NoReturn:
        # Only plain values: the repr of other objects has addresses, which differ between runs.
        plain = [repr(each) for each in (*args, *named.values()) if isinstance(each, (str, int))]
        raise unsupported_message(f"loop.{name}({', '.join(plain)})", why)

    return refuse


class UnsupportedLoopCalls(asyncio.AbstractEventLoop):
    """Refuse every method that would reach out of the simulation."""

    def foreign_thread(self, name: str) -> NotSimulated:
        """Build the error for a call from another thread than the loop's own."""
        return unsupported_message(f"loop.{name}() from another thread", _THREADS)


_UNSUPPORTED = {
    _THREADS: ("run_in_executor", "set_default_executor"),
    _SOCKETS: (
        *("getaddrinfo", "getnameinfo", "create_connection", "create_server"),
        *("create_unix_connection", "create_unix_server", "create_datagram_endpoint"),
        *("connect_accepted_socket", "start_tls", "sendfile", "sock_sendfile", "sock_recv"),
        *("sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendto"),
        *("sock_connect", "sock_accept", "add_reader", "remove_reader"),
        *("add_writer", "remove_writer"),
    ),
    _PROCESSES: (
        *("connect_read_pipe", "connect_write_pipe", "subprocess_shell", "subprocess_exec"),
    ),
    _SIGNALS: ("add_signal_handler", "remove_signal_handler"),
    _FACTORY: ("set_task_factory",),
}
for _why, _names in _UNSUPPORTED.items():
    for _name in _names:
        setattr(UnsupportedLoopCalls, _name, _refusal(_name, _why))


T = TypeVar("T")

STEPS_PER_INSTANT = 1_000_000
"""More steps than this without time moving are a livelock."""

_STEPS_PER_COLLECTION = 50_000
_FEW_TIMERS = 128


class VirtualLoop(UnsupportedLoopCalls, TaskTracking):
    """Belongs to the thread that created it; fits `asyncio.Runner(loop_factory=...)`."""

    freezes: ClassVar[bool] = True
    """Whether a run leaves what was there before it out of its garbage collections.

    Thawing thaws all: a process that has frozen what it was born with does without.
    """

    def __init__(self, *, limit: float) -> None:
        super().__init__()
        self._limit = limit
        self._now = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._many_timers = _FEW_TIMERS
        self._count = itertools.count(1)
        self._steps_left = STEPS_PER_INSTANT
        self._until_collection = _STEPS_PER_COLLECTION
        self._collected = False
        self._thread = get_ident()
        self._running = False
        self._stopping = False
        self._closed = False
        self._interrupted = False
        """Something from outside ended the run; what is left only stops."""

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed or get_ident() != self._thread:
            self._refuse("call_soon")
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Like `call_soon`, for libraries that use this on the loop's own thread."""
        self._check("call_soon_threadsafe")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Timers of one instant fire in the order of the calls."""
        if self._closed or get_ident() != self._thread:
            self._refuse("call_at")
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._count), handle))
        if len(self._timers) > self._many_timers:
            self._timers = [timer for timer in self._timers if not timer[2].cancelled()]
            heapq.heapify(self._timers)
            self._many_timers = 2 * len(self._timers) + _FEW_TIMERS
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when due, or when there are many timers."""

    def create_future(self) -> asyncio.Future[Any]:
        future = CountedFuture(loop=self)
        future.number = next(self._count)
        return future

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        self._check("create_task")
        number = next(self._count)
        task_name = f"task-{number}" if name is None else str(name)
        task: asyncio.Task[T] = CountedTask(
            coro, number=number, loop=self, name=task_name, context=context
        )
        self._tasks[number] = task
        task.add_done_callback(self._end_from_outside)  # first, so that no owner judges it before
        return task

    def get_task_factory(self) -> None:
        return None

    def _end_from_outside(self, task: asyncio.Task[Any]) -> None:
        """End the run by what no program raises, as an interrupt or a time-out of its test.

        It strikes whichever task happens to run, which is not at fault.
        """
        ended: Any = task
        error = ended._exception  # the public `exception()` would count as a retrieval
        if error is not None and not isinstance(error, Exception) and not self._interrupted:
            raise error

    def _check(self, name: str) -> None:
        if self._closed or get_ident() != self._thread:
            self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        raise self.foreign_thread(name)

    def run_forever(self) -> None:
        """Run until `stop()`; raise `Deadlock` when nothing can happen any more."""
        with self._run():
            self._step()
            while not self._stopping:
                self._step()

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        task = asyncio.ensure_future(cast(Awaitable[T], future), loop=self)
        task.add_done_callback(self._stop)
        try:
            self.run_forever()
        except BaseException as error:
            self._interrupted = not isinstance(error, Exception)
            if task.done() and not task.cancelled():
                task.exception()  # propagating already
            raise
        finally:
            task.remove_done_callback(self._stop)
        if not task.done():
            raise RuntimeError("Event loop stopped before Future completed.")
        return task.result()

    def finish_instant(self) -> None:
        """Run everything that needs no time."""
        with self._run():
            while self._ready:
                self._step()

    def run_until_done(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Run until these tasks are done, however they end."""
        with self._run():
            while not all(task.done() for task in tasks):
                self._step()

    def stop(self) -> None:
        self._stopping = True

    def _stop(self, _future: asyncio.Future[Any]) -> None:
        self._stopping = True

    @contextmanager
    def _run(self) -> Generator[None]:
        self._check("run_forever")
        if self._running:
            raise RuntimeError("This event loop is already running")
        if _get_running_loop() is not None:
            raise RuntimeError("Cannot run the event loop while another loop is running")
        hooks = sys.get_asyncgen_hooks()
        collecting = gc.isenabled()
        # Garbage collection ends abandoned async generators, so it must not depend on the
        # interpreter's own timing or on the surrounding program.
        gc.disable()
        if self.freezes:
            gc.freeze()
        self._running = True
        try:
            sys.set_asyncgen_hooks(firstiter=self.asyncgen_started, finalizer=self.asyncgen_dropped)
            _set_running_loop(self)
            yield
        finally:
            # While it ran, nothing came of age but by a collection of its own.
            gc.collect(2 if self.freezes or self._collected else 1)
            self._running = self._stopping = False
            _set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            if self.freezes:
                gc.unfreeze()
            if collecting:
                gc.enable()

    def _step(self) -> None:
        """Run everything that is ready once; if nothing is, advance to the next timer."""
        ready = self._ready
        if not ready and not self._stopping:
            self._advance()
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        steps = len(ready)
        for _ in range(steps):
            handle: Any = ready.popleft()  # the loop's part of a handle is private
            if handle._cancelled:
                continue
            try:
                handle._context.run(handle._callback, *handle._args)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001
                self.call_exception_handler(
                    {"message": f"Exception in {handle!r}", "exception": error, "handle": handle}
                )
        self._spend(steps)

    def _advance(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise Deadlock(
                f"at {self._now:g} s nothing is ready and no timer is set; "
                f"these tasks wait forever:\n{describe_waiting(self.pending())}"
            )
        when = timers[0][0]
        if when > self._limit:
            raise VirtualTimeExceeded(
                f"the next timer is at {when:g} s, the run's limit is {self._limit:g} s: something "
                f"did not happen in time, or limit= is too low; waiting tasks:\n"
                f"{describe_waiting(self.pending())}"
            )
        if when > self._now:
            self._now = when
            self._steps_left = STEPS_PER_INSTANT

    def _spend(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            self._steps_left = STEPS_PER_INSTANT
            raise Livelock(
                f"more than {STEPS_PER_INSTANT} steps at {self._now:g} s: a loop without "
                f"waiting, in one or more of these tasks:\n{describe_waiting(self.pending())}"
            )
        self._until_collection -= steps
        if self._until_collection < 0:
            self._until_collection = _STEPS_PER_COLLECTION
            self._collected = True
            gc.collect()

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Close for good; raise unhandled failures as one group."""
        if self._running:
            raise RuntimeError("Cannot close a running event loop")
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        if failures := self.unhandled_failures():
            raise ExceptionGroup("unhandled failures in virtual time", failures)
