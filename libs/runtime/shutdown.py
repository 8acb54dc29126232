"""Signals that end a process, and a thread that ends it where its own shutdown hangs.

The last resort runs outside the event loop, because it must work when the loop does not.
"""

import asyncio
import os
import queue
import signal
import threading
import time
from collections.abc import Callable

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ShutdownHandler:
    """Stop the process at the first signal; end it at once at the second."""

    def __init__(self, *, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._first_signal = ""
        # The thread starts early and waits on a queue, which a signal handler may use at any time.
        self._deadline_started: queue.SimpleQueue[None] = queue.SimpleQueue()
        threading.Thread(target=self._enforce_deadline, name="ending", daemon=True).start()

    def install(self, loop: asyncio.AbstractEventLoop, stop: Callable[[str], None]) -> None:
        """Handle this process's signals; call `stop` on the loop with the name of the signal."""

        # Not `loop.add_signal_handler`: a second signal has to work while a callback hangs.
        def handle(number: int, _frame: object) -> None:
            name = signal.Signals(number).name
            if self._first_signal:
                _exit(
                    f"{name} after {self._first_signal}: exiting with 1 at once, without draining"
                )
            self._first_signal = name
            self.start_deadline()
            if not loop.is_closed():
                loop.call_soon_threadsafe(stop, name)

        for number in STOP_SIGNALS:
            signal.signal(number, handle)

    def start_deadline(self) -> None:
        """Give the process `grace_seconds` from the first call on to end by itself."""
        self._deadline_started.put(None)

    def _enforce_deadline(self) -> None:
        self._deadline_started.get()
        time.sleep(self._grace_seconds)
        _exit(f"the shutdown hung for {self._grace_seconds:g} s: exiting with 1 at once")


def _exit(message: str) -> None:
    # No logger: a thread that hangs or was interrupted may hold its lock.
    os.write(2, f"{message}\n".encode())
    os._exit(1)
