"""When the event loop counts as stuck, and how reasons are shown to a prober."""

import asyncio

from libs.runtime.clock import Clock
from libs.runtime.process import STALL_SECONDS, LoopWatchdog, probe_page
from tests.unit.runtime.virtual_time import Virtual


def test_a_heart_that_beats_is_never_late_and_one_that_stops_is(virtual: Virtual, clock: Clock):
    async def story() -> None:
        heartbeat = LoopWatchdog(clock)
        beating = asyncio.create_task(heartbeat.run())
        await asyncio.sleep(1000.5)
        assert heartbeat.stall_reasons() == []
        beating.cancel()
        await asyncio.wait({beating})
        await asyncio.sleep(STALL_SECONDS - 1)
        assert heartbeat.stall_reasons() == []
        await asyncio.sleep(6)
        assert heartbeat.stall_reasons() == ["the event loop has been stalled for 20 s"]

    virtual(story())


def test_no_reason_is_200_and_reasons_are_503_line_by_line():
    assert (probe_page([]).status, probe_page([]).body) == (200, b"ok\n")
    page = probe_page(["driver: starting", "driver: bus: away"])
    assert (page.status, page.body) == (503, b"driver: starting\ndriver: bus: away\n")
