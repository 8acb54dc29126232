"""Sweeps and quiescing that meet, and a machine that does not answer."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from libs.host.gpus.port import GpuHandle
from libs.host.machine import Offload
from libs.runtime.clock import Clock, SystemClock
from libs.runtime.metrics import Metrics
from libs.testing.simulation import Sim, run
from services.telemetry.node.sampler import STALE_AFTER, Sampler, TelemetryMetrics
from tests.support import eventually
from tests.unit.fake_machine import FakeMachine
from tests.unit.telemetry.node.world import GpuWorld

T = TypeVar("T")


class SlowAccess:
    """Answers after a while."""

    def __init__(self, sim: Sim) -> None:
        self._sim = sim
        self.seconds = 0.0

    async def do(self, work: Callable[[], T]) -> T:
        await self._sim.clock.sleep(self.seconds)
        return work()


def sampler(clock: Clock, root: Path, hands: GpuWorld, access: Offload) -> Sampler:
    machine = msgspec.structs.replace(FakeMachine(root).machine, offload=access, gpus=hands.gpus)
    return Sampler(
        machine=machine,
        hold=GpuHandle(hands.gpus),
        clock=clock,
        metrics=TelemetryMetrics(Metrics(version="0")),
    )


class FirstInThread:
    """The first thing it is asked is done in a thread, everything else at once."""

    def __init__(self) -> None:
        self._asked = False

    async def do(self, work: Callable[[], T]) -> T:
        first, self._asked = not self._asked, True
        return await asyncio.to_thread(work) if first else work()


async def test_a_release_waits_for_the_running_sweep(tmp_path: Path) -> None:
    hands, began, opens = GpuWorld(), threading.Event(), threading.Event()
    hands.on_open = lambda: (began.set(), opens.wait(20.0))
    one = sampler(SystemClock(), tmp_path, hands, FirstInThread())
    sweeping = asyncio.create_task(one.sweep())
    await eventually(began.is_set)
    letting_go = asyncio.create_task(one.release())
    for _ in range(10):
        await asyncio.sleep(0)
    opens.set()
    await sweeping
    await letting_go
    assert (hands.held, one.current) == (0, None)
    await one.sweep()
    assert (hands.held, one.current) == (0, None)


def test_gpus_that_do_not_answer_are_not_shown_as_they_were(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        hands, access = GpuWorld(), SlowAccess(sim)
        one = sampler(sim.clock, tmp_path, hands, access)
        await one.sweep()
        access.seconds = 2 * STALE_AFTER
        hanging = sim.loop.create_task(one.sweep())
        await sim.clock.sleep(STALE_AFTER)
        assert one.current is not None
        assert one.problem == ""
        await sim.clock.sleep(1.0)
        assert one.current is None
        assert one.problem == "the GPUs did not answer for 91 s"
        await hanging
        assert one.current is not None
        assert one.problem == ""

    run(main, seed=0)
