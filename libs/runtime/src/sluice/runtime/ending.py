"""How a process is told to end, and made to: signals, and a watch over its own shutdown.

It works beside the event loop, because its last resort must work when the loop does not.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable

ASKING = (signal.SIGTERM, signal.SIGINT)


class Ending:
    """The first signal asks for a stop, the second ends the process at once."""

    def __init__(self, *, patience: float) -> None:
        self._patience = patience
        self._asked = ""
        self._watched = False

    def listen(self, loop: asyncio.AbstractEventLoop, stop: Callable[[str], None]) -> None:
        """Take the signals of this process; `stop` is called on the loop with the signal's name."""

        # Not `loop.add_signal_handler`: a second signal has to work while a callback hangs.
        def signalled(number: int, _frame: object) -> None:
            name = signal.Signals(number).name
            if self._asked:
                _exit(f"{name} after {self._asked}: exit 1 at once, without draining")
            self._asked = name
            if not loop.is_closed():
                loop.call_soon_threadsafe(stop, name)

        for number in ASKING:
            signal.signal(number, signalled)

    def watch(self) -> None:
        """From now on the process has `patience` seconds to end by itself."""
        if not self._watched:
            self._watched = True
            threading.Thread(target=self._wait, name="ending", daemon=True).start()

    def _wait(self) -> None:
        threading.Event().wait(self._patience)
        _exit(f"the shutdown itself hung for {self._patience:g} s: exit 1 at once")


def _exit(last_words: str) -> None:
    # No logger: the thread that hangs, or was interrupted, may hold its lock.
    os.write(2, f"{last_words}\n".encode())
    os._exit(1)
