"""End a process whose event loop hangs, for services that are worse than absent when they hang.

The members of a NATS queue group share the requests: one that hangs keeps its share unanswered
until the server gives up its connection, minutes later. A liveness probe takes as long.
"""

import asyncio
import os
import sys
import threading
from contextlib import suppress
from pathlib import PurePath
from types import TracebackType
from typing import Final, Self

SECONDS: Final = 5.0
CHECKS: Final = 10
"""Checks in that time. They are counted, so that time in which the whole process does not run,
such as while it is stopped by a signal, does not count as time in which its loop hangs."""
EXIT_CODE: Final = 70


class Watchdog:
    """While entered on an event loop, end the process once the loop has hung for `seconds`."""

    _loop: asyncio.AbstractEventLoop
    _loop_thread: int

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._stopped = threading.Event()
        self._answered = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._thread.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        missed = 0
        self._ask()
        while not self._stopped.wait(self._seconds / CHECKS):
            if self._answered.is_set():
                missed = 0
                self._ask()
            else:
                missed += 1
            if missed >= CHECKS:
                self._end()

    def _ask(self) -> None:
        self._answered.clear()
        with suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._answered.set)

    def _end(self) -> None:
        # No logger: the thread that hangs may hold its lock.
        os.write(
            2,
            f"the event loop has hung for {self._seconds:g} s{self._where()}: exiting with"
            f" {EXIT_CODE}\n".encode(),
        )
        os._exit(EXIT_CODE)

    def _where(self) -> str:
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
        frame = frames.get(self._loop_thread)
        if frame is None:
            return ""
        code = frame.f_code
        return f" in {code.co_name} ({PurePath(code.co_filename).name}:{frame.f_lineno})"
