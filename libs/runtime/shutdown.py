"""How a process is told to end, and made to: signals, and a watch over its own shutdown.

It works beside the event loop, because its last resort must work when the loop does not.
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
    """The first signal asks for a stop, the second ends the process at once."""

    def __init__(self, *, grace_seconds: float) -> None:
        self._patience = grace_seconds
        self._asked = ""
        # Started before it is needed, and woken by what a signal handler may call at any time.
        self._begun: queue.SimpleQueue[None] = queue.SimpleQueue()
        threading.Thread(target=self._watch, name="ending", daemon=True).start()

    def install(self, loop: asyncio.AbstractEventLoop, stop: Callable[[str], None]) -> None:
        """Take the signals of this process; `stop` is called on the loop with the signal's name."""

        # Not `loop.add_signal_handler`: a second signal has to work while a callback hangs.
        def signalled(number: int, _frame: object) -> None:
            name = signal.Signals(number).name
            if self._asked:
                _exit(f"{name} after {self._asked}: exit 1 at once, without draining")
            self._asked = name
            self.start_deadline()
            if not loop.is_closed():
                loop.call_soon_threadsafe(stop, name)

        for number in STOP_SIGNALS:
            signal.signal(number, signalled)

    def start_deadline(self) -> None:
        """From the first call on, the process has `patience` seconds to end by itself."""
        self._begun.put(None)

    def _watch(self) -> None:
        self._begun.get()
        time.sleep(self._patience)
        _exit(f"the shutdown itself hung for {self._patience:g} s: exit 1 at once")


def _exit(last_words: str) -> None:
    # No logger: the thread that hangs, or was interrupted, may hold its lock.
    os.write(2, f"{last_words}\n".encode())
    os._exit(1)
