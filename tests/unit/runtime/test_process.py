"""The watchdog of the event loop, and the pages of probes."""

import asyncio

from libs.runtime.clock import Clock
from libs.runtime.process import STALL_SECONDS, LoopWatchdog, probe_page
from tests.unit.runtime.virtual_time import in_virtual_time


@in_virtual_time()
async def test_the_watchdog_reports_a_stalled_loop_only(clock: Clock) -> None:
    watchdog = LoopWatchdog(clock)
    ticking = asyncio.create_task(watchdog.run())
    await asyncio.sleep(1000.5)
    assert watchdog.stall_reasons() == []
    ticking.cancel()
    await asyncio.wait({ticking})
    await asyncio.sleep(STALL_SECONDS - 1)
    assert watchdog.stall_reasons() == []
    await asyncio.sleep(6)
    assert watchdog.stall_reasons() == ["the event loop has been stalled for 20 s"]


def test_a_probe_returns_200_or_503_with_one_reason_per_line():
    assert (probe_page([]).status, probe_page([]).body) == (200, b"ok\n")
    page = probe_page(["driver: starting", "driver: bus: away"])
    assert (page.status, page.body) == (503, b"driver: starting\ndriver: bus: away\n")
