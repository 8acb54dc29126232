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
from tests.unit.fake_machine import VERSION, FakeDriver, FakeMachine

T = TypeVar("T")


class SlowAccess:
    """Answers after a while."""

    def __init__(self, sim: Sim) -> None:
        self._sim = sim
        self.seconds = 0.0

    async def do(self, work: Callable[[], T]) -> T:
        await self._sim.clock.sleep(self.seconds)
        return work()


def sampler(clock: Clock, root: Path, driver: FakeDriver, access: Offload) -> Sampler:
    machine = msgspec.structs.replace(FakeMachine(root).machine, offload=access, gpus=driver.gpus)
    return Sampler(
        machine=machine,
        hold=GpuHandle(driver.gpus),
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
    driver, began, opens = FakeDriver(loaded=VERSION), threading.Event(), threading.Event()
    driver.on_open = lambda: (began.set(), opens.wait(20.0))
    gpu_sampler = sampler(SystemClock(), tmp_path, driver, FirstInThread())
    sweeping = asyncio.create_task(gpu_sampler.sweep())
    await eventually(began.is_set)
    releasing = asyncio.create_task(gpu_sampler.release())
    for _ in range(10):
        await asyncio.sleep(0)
    opens.set()
    await sweeping
    await releasing
    assert (driver.held, gpu_sampler.current) == (0, None)
    await gpu_sampler.sweep()
    assert (driver.held, gpu_sampler.current) == (0, None)


def test_gpus_that_do_not_answer_are_not_shown_as_they_were(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        driver, access = FakeDriver(loaded=VERSION), SlowAccess(sim)
        gpu_sampler = sampler(sim.clock, tmp_path, driver, access)
        await gpu_sampler.sweep()
        access.seconds = 2 * STALE_AFTER
        hanging = sim.loop.create_task(gpu_sampler.sweep())
        await sim.clock.sleep(STALE_AFTER)
        assert gpu_sampler.current is not None
        assert gpu_sampler.problem == ""
        await sim.clock.sleep(1.0)
        assert gpu_sampler.current is None
        assert gpu_sampler.problem == "the GPUs did not answer for 91 s"
        await hanging
        assert gpu_sampler.current is not None
        assert gpu_sampler.problem == ""

    run(main, seed=0)
