"""A program with a watchdog that acts soon; it hangs at SIGUSR1."""

import asyncio
import signal
import sys
import threading

from libs.runtime.watchdog import Watchdog


def hang(_number: int, _frame: object) -> None:
    threading.Event().wait()


async def main() -> None:
    signal.signal(signal.SIGUSR1, hang)
    async with Watchdog(seconds=float(sys.argv[1])):
        while True:
            sys.stdout.write("alive\n")
            sys.stdout.flush()
            await asyncio.sleep(0.05)


asyncio.run(main())
