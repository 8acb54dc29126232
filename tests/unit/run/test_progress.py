"""The watch of a test's progress looks at another thread while that runs."""

import asyncio
import sys
import threading
import time
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.run.progress import ProgressWatch

LOOKS: Final = 2_000


async def work_until(over: threading.Event) -> None:
    while not over.is_set():
        with TemporaryDirectory():
            await asyncio.sleep(0)


def test_looking_at_a_test_that_runs_harms_nothing() -> None:
    """What a running coroutine awaits is garbage to other threads: Python died of reading it."""
    watch: Any = ProgressWatch(lambda text: None)
    over = threading.Event()
    places: set[tuple[str, ...]] = set()

    def look() -> None:
        try:
            for _ in range(LOOKS):
                places.add(watch._place())
                time.sleep(0)  # the test goes on
        finally:
            over.set()

    thread = threading.Thread(target=look)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        asyncio.run(work_until(over))
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(places) > 1
