"""A net for tests that hang: a test that goes on is not ended, however slow the machine is.

A thread looks where the test stands, and ends the process when that has been the same place for
too long, or when the test has used very much of a processor. The process is ended, and nothing is
raised in it: an exception would land in the code under test, which may catch it or be blamed.
"""

import asyncio
import inspect
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

SECONDS_AT_ONE_PLACE: Final = 300.0
"""Well above what any test waits for in one place on a busy machine."""
SECONDS_AT_ONE_PLACE_ON_A_GROUND: Final = 900.0
"""A kubelet's patience is minutes, and a child process may build an image."""
CPU_SECONDS: Final = 600.0
"""Of one test: for a loop that never ends, which is at another place at each look."""
LOOK_EVERY: Final = 1.0

Place = tuple[str, ...]
Tell = Callable[[str], None]


class ProgressWatch:
    """Follows one test at a time."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._main = threading.main_thread().ident or 0
        self._lock = threading.Lock()
        self._limit: float | None = None
        self._cpu_limit = 0.0

    def start(self) -> None:
        threading.Thread(target=self._run, name="progress", daemon=True).start()

    @contextmanager
    def test(self, limit: float) -> Generator[None]:
        """Watch what happens within."""
        with self._lock:
            self._limit, self._cpu_limit = limit, _cpu() + CPU_SECONDS
        try:
            yield
        finally:
            with self._lock:
                self._limit = None

    def _run(self) -> None:
        last: Place = ()
        looks = 0
        while True:
            time.sleep(LOOK_EVERY)
            with self._lock:
                limit, cpu_limit = self._limit, self._cpu_limit
            if limit is None:
                last = ()
                continue
            place = self._place()
            # Looks, not seconds: a machine that was suspended has not waited.
            looks = looks + 1 if place == last else 0
            last = place
            if looks * LOOK_EVERY >= limit:
                self._end(f"no progress for {limit:.0f} s", place)
            if _cpu() > cpu_limit:
                self._end(f"more than {CPU_SECONDS:.0f} s of a processor for one test", place)

    def _place(self) -> Place:
        frame = sys._current_frames().get(self._main)  # pyright: ignore[reportPrivateUsage]
        return tuple(_place_of(frame))

    def _end(self, why: str, place: Place) -> None:
        self._tell(f"{why}, last seen doing:\n" + "\n".join(f"  {line}" for line in place[-12:]))
        for pid in descendants(os.getpid()):
            _kill(pid)
        os._exit(70)


def _place_of(frame: FrameType | None) -> Iterator[str]:
    """Yield the calls of a thread, outermost first, and in an event loop what its task awaits."""
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    for each in reversed(frames):
        if "_pytest" in each.f_code.co_filename or "pluggy" in each.f_code.co_filename:
            continue
        yield _line(each.f_code, each.f_lineno)
        if each.f_code.co_name == "run_until_complete":
            future = each.f_locals.get("future")
            if isinstance(future, asyncio.Task):
                yield from _awaits(future.get_coro())


def _awaits(coroutine: Any) -> Iterator[str]:
    while coroutine is not None:
        if inspect.isgenerator(coroutine):
            # What one that runs awaits is garbage, and Python ends with a SIGSEGV: nothing may come
            # between the question and the look, neither a call nor a loop's next round.
            awaited = None if coroutine.gi_running else coroutine.gi_yieldfrom
            frame = coroutine.gi_frame
        elif inspect.iscoroutine(coroutine):
            awaited = None if coroutine.cr_running else coroutine.cr_await
            frame = coroutine.cr_frame
        else:
            return
        if frame is not None:
            yield _line(frame.f_code, frame.f_lineno)
        coroutine = awaited


def _line(code: CodeType, number: int) -> str:
    return f"{code.co_filename}:{number} in {code.co_qualname}"


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def has_children() -> bool:
    """Return whether this process has a child: most tests have none, and a look at all is dear."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def children() -> set[int]:
    """Return the processes that this one has started, and those that they have."""
    return set(descendants(os.getpid())) if has_children() else set()


def descendants(pid: int) -> list[int]:
    """Return the processes below one, the youngest first."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in parents.get(parent, ())]
        found += level
    return found[::-1]


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
