"""Sweeps and quiescing that meet, and a machine that does not answer."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from libs.host.access import Access
from libs.host.gpus.hold import Hold
from libs.runtime.clock import Clock, SystemClock
from libs.runtime.metrics import Metrics
from libs.testing.loop import Sim, run
from services.telemetry.node.meters import TelemetryMeters
from services.telemetry.node.sampler import STALE, Sampler
from tests.support import eventually
from tests.unit.boxes import Box
from tests.unit.telemetry.node.measuring import Hands

T = TypeVar("T")


class Slow:
    """Answers after a while."""

    def __init__(self, sim: Sim) -> None:
        self._sim = sim
        self.seconds = 0.0

    async def do(self, work: Callable[[], T]) -> T:
        await self._sim.clock.sleep(self.seconds)
        return work()


def sampler(clock: Clock, root: Path, hands: Hands, access: Access) -> Sampler:
    machine = msgspec.structs.replace(Box(root).machine, access=access, gpus=hands.gpus)
    return Sampler(
        machine=machine,
        hold=Hold(hands.gpus),
        clock=clock,
        meters=TelemetryMeters(Metrics(version="0")),
    )


class FirstApart:
    """The first thing it is asked is done in a thread, everything else at once."""

    def __init__(self) -> None:
        self._asked = False

    async def do(self, work: Callable[[], T]) -> T:
        first, self._asked = not self._asked, True
        return await asyncio.to_thread(work) if first else work()


async def test_who_lets_go_waits_for_the_sweep_under_way(tmp_path: Path) -> None:
    hands, began, opens = Hands(), threading.Event(), threading.Event()
    hands.on_open = lambda: (began.set(), opens.wait(20.0))
    one = sampler(SystemClock(), tmp_path, hands, FirstApart())
    sweeping = asyncio.create_task(one.look())
    await eventually(began.is_set)
    letting_go = asyncio.create_task(one.let_go())
    for _ in range(10):
        await asyncio.sleep(0)
    opens.set()
    await sweeping
    await letting_go
    assert (hands.held, one.current) == (0, None)
    await one.look()
    assert (hands.held, one.current) == (0, None)


def test_gpus_that_do_not_answer_are_not_shown_as_they_were(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        hands, access = Hands(), Slow(sim)
        one = sampler(sim.clock, tmp_path, hands, access)
        await one.look()
        access.seconds = 2 * STALE
        hanging = sim.loop.create_task(one.look())
        await sim.clock.sleep(STALE)
        assert one.current is not None
        assert one.trouble == ""
        await sim.clock.sleep(1.0)
        assert one.current is None
        assert one.trouble == "the GPUs did not answer for 91 s"
        await hanging
        assert one.current is not None
        assert one.trouble == ""

    run(main, seed=0)
