"""A process ends itself when its event loop hangs, and only then."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from libs.runtime.watchdog import EXIT_CODE
from libs.testing.child_process import ChildProcess

SECONDS = 0.5
FORBEARANCE = 4
"""Times `SECONDS` for which the process is stopped by a signal."""


@pytest.fixture
async def watched() -> AsyncIterator[ChildProcess]:
    module = "tests.component.runtime.watched"
    child = await ChildProcess.start("watched", sys.executable, "-m", module, str(SECONDS))
    await child.wait_for_log("alive")
    yield child
    await child.destroy()


async def test_a_process_whose_loop_hangs_ends(watched: ChildProcess) -> None:
    await watched.end(signal.SIGUSR1, code=EXIT_CODE)
    (line,) = (line for line in watched.log.splitlines() if "alive" not in line)
    assert line.startswith("the event loop has hung for 0.5 s in wait (threading.py:")
    assert line.endswith("): exiting with 70")


async def test_a_process_that_was_suspended_goes_on(watched: ChildProcess) -> None:
    for _ in range(2):
        watched.send_signal(signal.SIGSTOP)
        await asyncio.sleep(FORBEARANCE * SECONDS)
        watched.send_signal(signal.SIGCONT)
        for _ in range(20):
            await watched.wait_for_log("alive", since=len(watched.log))
    assert "hung" not in watched.log
